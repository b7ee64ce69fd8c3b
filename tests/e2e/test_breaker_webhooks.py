"""A campaign whose media nobody can fetch: Meta says yes to each message, and fails it later."""

from launching import Launch
from test_campaign import QUICK
from waiting import until

RATE = 100
RECIPIENTS = 2000


async def test_failures_that_come_by_webhook_pause_a_campaign(launch: Launch) -> None:
    failing = {**QUICK, "failed": [{"share": 1, "code": 131053, "times_per_recipient": None}]}
    trial = await launch(RECIPIENTS, RATE, {"webhooks": failing})

    async def state() -> str:
        return str((await trial.look())["state"])

    await until(state, 60, is_right="paused".__eq__)

    told = await trial.look()
    (held,) = [one for one in told["holding"] if one["reason"] == "campaign_paused"]
    assert held["detail"].startswith("breaker: ")
    assert "131053" in held["detail"]
    # It looks every two seconds, and webhooks take their time.
    assert told["counts"]["pending"] > 0
    (event,) = [
        one
        for one in (await trial.rest.get(f"/v1/campaigns/{trial.campaign}/events"))["data"]
        if one["kind"] == "paused"
    ]
    assert event["actor"] == "breaker"
    assert event["details"]["failures"] > 50

    async def open_ends() -> int:
        return (await trial.meta.stats()).outstanding + await trial.books.unapplied()

    await until(open_ends, 30, is_right=(0).__eq__)
    outcome = await trial.compare()
    sent = len(outcome.ledger)
    assert outcome.statuses == {"failed": sent, "pending": RECIPIENTS - sent}
    assert outcome.counts == outcome.statuses
