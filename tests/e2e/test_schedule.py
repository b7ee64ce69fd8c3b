"""A campaign that starts by itself and expires on its way, through real processes."""

from datetime import UTC, datetime, timedelta

import httpx
from waiting import until

from services.cli.audience_file import write_audience
from services.cli.comparison import Comparison
from services.cli.stack import Stack
from services.cli.trial import open_trial
from shared.domain.status import Status

CALM = {"latency": {"median_ms": 20, "sigma": 0}}
QUICK = {"delay_s": {"sent": 0.1, "delivered": 0.3, "read": 0.5}, "batch": 20, "window_ms": 20}
# What was claimed before the expiry still leaves at its slot, until the roster is read again.
ON_ITS_WAY_SECONDS = 2.0


async def test_it_starts_at_its_time_and_stops_at_its_expiry(
    stack: Stack, numbers, tmp_path
) -> None:
    number = next(numbers)
    audience = write_audience(tmp_path / "people.csv", 600, int(number))
    headers = {"Authorization": f"Bearer {stack.secrets.admin_key}"}
    async with (
        open_trial(stack, number, 50, "Later") as trial,
        httpx.AsyncClient(base_url=stack.sender.url, headers=headers, trust_env=False) as client,
    ):
        path = f"/v1/campaigns/{trial.campaign}"

        async def state() -> str:
            return str((await trial.look())["state"])

        async def accepted() -> bool:
            counts = (await trial.look())["counts"]
            return sum(counts[name] for name in ("accepted", "sent", "delivered", "read")) >= 50

        await trial.meta.play({**CALM, "webhooks": {**QUICK, "url": stack.webhook_url}})
        start_at = datetime.now(UTC) + timedelta(seconds=2)
        await trial.rest.post(f"{path}/start", {"at": start_at.isoformat()})
        assert await state() == "scheduled"
        await trial.upload(audience.path)

        await until(accepted, 20)
        expires_at = datetime.now(UTC) + timedelta(seconds=1)
        answer = await client.patch(path, json={"expires_at": expires_at.isoformat()})
        assert answer.status_code == 200, answer.text
        await until(state, 30, is_right="completed".__eq__)

        assert await trial.settle(30)
        outcome = await trial.compare()
        kinds = [event["kind"] for event in (await trial.rest.get(f"{path}/events"))["data"]]

    skipped = {row.id for row in outcome.rows if row.status is Status.SKIPPED}
    assert skipped
    assert outcome.comparison == Comparison()
    assert {row.reason for row in outcome.rows if row.id in skipped} == {"expired"}
    times = [item.at for item in outcome.ledger]
    assert min(times) >= start_at.timestamp()
    assert max(times) <= expires_at.timestamp() + ON_ITS_WAY_SECONDS
    assert outcome.counts == outcome.statuses
    assert kinds == ["created", "scheduled", "uploaded", "started", "changed", "completed"]
