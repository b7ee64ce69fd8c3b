"""Campaigns through a storm: everything that can fail does, at an instant when it hurts."""

import contextlib
import json
import random
import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest
from faults import KINDS, Faults, Struck
from site_of_three import Eye, Site, sited
from waiting import until

from services.cli.audience_file import write_audience
from services.cli.comparison import Comparison
from services.cli.evidence import Books, Meta
from services.cli.rest import AwayError, Rest
from services.cli.trial import WABA, Outcome, Trial, open_trial
from services.cli.weather import EXCUSES, PAIR_LIMIT, UNDELIVERABLE
from shared.domain.status import Status
from shared.whatsapp.signature import sign

pytestmark = pytest.mark.timeout(300)
# Longer than lease and read timeout; the API would add a minute for what is slow to be applied.
WINDOW_SECONDS = 20
FIRST, LAST = 0.04, 0.8
TRIES = 5
_UNKNOWN = """
    SELECT count(*) FROM messages JOIN campaigns ON campaigns.id = campaign_id
    WHERE public_id = $1 AND status IN ('pending', 'claimed', 'unknown')
"""
_POLICY = "UPDATE campaigns SET unknown_policy = $2, unknown_window_s = $3 WHERE public_id = $1"


def weather(seed: int, url: str) -> dict[str, Any]:
    """Errors and stalls, and every status arrives in the end, so that what is unknown is exact."""
    return {
        "seed": seed,
        "latency": {"median_ms": 200, "sigma": 0.3},
        "errors": [{"code": PAIR_LIMIT, "share": 0.005}],
        "ambiguous": [
            {"kind": "html_502", "share": 0.003, "accepted": True, "withhold": 0.3},
            {"kind": "html_502", "share": 0.002, "accepted": False},
            {"kind": "stall", "share": 0.005, "accepted": True, "withhold": 0.3},
            {"kind": "reset", "share": 0.002, "accepted": True},
            {"kind": "empty_200", "share": 0.002, "accepted": True},
        ],
        "webhooks": {
            "url": url,
            "delay_s": {"sent": 0.2, "delivered": 0.4, "read": 1.0},
            "jitter": 0.5,
            "read_share": 0.3,
            "failed": [{"code": UNDELIVERABLE, "share": 0.01, "after_sent": True}],
            "repeated_share": 0.05,
            "reorder_share": 0.2,
            "early_share": 0.01,
            # Small, so that there is often one on its way.
            "batch": 5,
            "window_ms": 20,
            "connections": 16,
            "timeout_s": 3,
            "redelivery": {"first_s": 0.5, "cap_s": 2},
        },
    }


@dataclass(frozen=True)
class Campaign:
    """A campaign of the storm, on a number of its own."""

    number: str
    id: str


@dataclass(frozen=True)
class Plan:
    """What a storm is made of. `kinds` are struck in this order, at even shares of the way."""

    seed: int
    recipients: int
    rate: int
    kinds: Sequence[str]
    #: The share of the rows by which the last fault must have struck.
    latest: float = 0.9

    @property
    def patience(self) -> float:
        """Seconds for what is left after the last fault, on a busy machine."""
        return 60 + self.recipients / self.rate


class Storm:
    """One storm over campaigns on a site."""

    def __init__(self, site: Site, plan: Plan, campaigns: Sequence[Campaign]) -> None:
        self.plan = plan
        self._ids = [one.id for one in campaigns]
        self.site = site
        self.campaigns = campaigns
        self.eye = Eye(site.stack.database_url)
        self.faults = Faults(site, self.eye, random.Random(plan.seed))
        self.told: list[tuple[float, Struck]] = []

    async def rage(self) -> None:
        """Strike one after the other; what met nothing open is struck again."""
        for place, kind in enumerate(self.plan.kinds):
            share = FIRST + (LAST - FIRST) * place / len(self.plan.kinds)
            await until(self._done, 600, is_right=share.__le__)
            for _ in range(TRIES):
                done = await self._done()
                struck = await self.faults.strike(kind)
                self.told.append((done, struck))
                assert await self.eye.disagreements() == []
                if struck.open:
                    break

    async def _done(self) -> float:
        return await self.eye.done(self._ids)

    def table(self) -> str:
        lines = [
            f"{done:6.1%}  {one.kind:20} {one.whom:10} {one.open:4} open" for done, one in self.told
        ]
        return "\n".join([f"seed {self.plan.seed}", *lines])

    async def resent(self, campaign: Campaign) -> bool:
        """Whether nothing is unknown any more, while Meta shows that it is there."""
        await show_life(self.site, campaign.number)
        return not (await self.eye.fetch(_UNKNOWN, UUID(campaign.id)))[0][0]

    async def settled(self, campaign: Campaign) -> Outcome:
        async with reopened(self.site, campaign) as trial:
            assert await trial.settle(self.plan.patience)
            outcome = await trial.compare(EXCUSES)
        assert outcome.counts == outcome.statuses
        tokens = [item.token for item in outcome.ledger]
        assert len(set(tokens)) == len(tokens), "an attempt was sent twice"
        return outcome


async def show_life(site: Site, number: str) -> None:
    """A message that somebody sends to the number: silence of statuses is then meant."""
    said = {"from": "12025550142", "id": "wamid.I", "timestamp": "1796112300", "type": "text"}
    value = {"metadata": {"phone_number_id": number}, "messages": [said | {"text": {"body": "Hi"}}]}
    change = {"field": "messages", "value": {"messaging_product": "whatsapp", **value}}
    body = json.dumps(
        {"object": "whatsapp_business_account", "entry": [{"id": WABA, "changes": [change]}]}
    ).encode()
    signature = {"X-Hub-Signature-256": sign(site.stack.secrets.app_secret, body)}
    async with httpx.AsyncClient(timeout=10, trust_env=False) as client:
        answer = await client.post(site.webhook_url, content=body, headers=signature)
        answer.raise_for_status()


@contextlib.asynccontextmanager
async def reopened(site: Site, campaign: Campaign) -> AsyncGenerator[Trial]:
    """With connections made after the storm."""
    stack = site.stack
    async with (
        Rest.open(site.senders[0].url, stack.secrets.admin_key) as rest,
        httpx.AsyncClient(base_url=stack.simulator.url, timeout=60, trust_env=False) as client,
    ):
        connection = await asyncpg.connect(stack.database_url)
        trial = Trial(rest, Meta(client, campaign.number), Books(connection), campaign.id)
        # The first answer after an outage may still speak of it: a connection of the pool is dead.
        await until(lambda: answers(trial))
        yield trial
        await connection.close()


async def answers(trial: Trial) -> bool:
    with contextlib.suppress(AwayError):
        return bool(await trial.look())
    return False


async def begin(site: Site, number: str, policy: str, plan: Plan, folder: Path) -> Campaign:
    # The same people would meet fewer errors in their second campaign.
    audience = write_audience(folder / f"{number}.csv", plan.recipients, int(number))
    async with open_trial(site.stack, number, plan.rate, policy) as trial:
        await trial.meta.play(weather(plan.seed, site.webhook_url))
        connection = await asyncpg.connect(site.stack.database_url)
        await connection.execute(_POLICY, UUID(trial.campaign), policy, WINDOW_SECONDS)
        await connection.close()
        await trial.upload(audience.path)
        await trial.start()
        return Campaign(number, trial.campaign)


@contextlib.asynccontextmanager
async def raging(site: Site, plan: Plan, *campaigns: Campaign) -> AsyncGenerator[Storm]:
    """A storm that has come to its end, with every process back."""
    storm = Storm(site, plan, campaigns)
    try:
        await storm.rage()
        await site.ready()
        yield storm
    finally:
        await storm.eye.close()


def tell(storm: Storm, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        sys.stdout.write(f"\n{storm.table()}\n")


def holds(storm: Storm) -> None:
    """The faults were as they should be: each kind, with something open, and early enough."""
    met = [one.kind for _, one in storm.told if one.open]
    assert sorted(met) == sorted(storm.plan.kinds)
    assert storm.told[0][0] < 0.5
    assert storm.told[-1][0] < storm.plan.latest
    # Nothing that was claimed when a sender froze has left after its thaw.
    assert [item.sent_later() for item in storm.faults.frozen if item.sent_later()] == []


def only_held(outcome: Outcome, faults: Faults) -> None:
    """Nothing lost, nothing doubled; unknown only what a fault or the weather left in doubt."""
    seen = outcome.comparison
    assert seen == Comparison(unknown_extra=seen.unknown_extra)
    assert set(seen.unknown_extra) <= faults.in_doubt


def only_resent(outcome: Outcome, were_unknown: set[int]) -> None:
    """Nothing lost and nothing left unknown; doubled only what nobody knew the end of."""
    seen = outcome.comparison
    assert not any(row.status is Status.UNKNOWN for row in outcome.rows)
    assert seen == Comparison(doubled=seen.doubled, unknown_missing=seen.unknown_missing)
    assert set(seen.doubled) <= were_unknown


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Generator[Site]:
    with sited(tmp_path_factory.mktemp("site")) as running:
        yield running


# What takes seconds comes last, or it would be over before the next one.
SHORT = {
    1: ("killed sender", "killed ingest", "cut way to Postgres", "emptied Valkey"),
    2: ("killed Postgres", "cut way from Meta", "killed Valkey", "frozen sender"),
    3: ("read-only Postgres", "cut way to Meta", "no connections left", "frozen ingest"),
}


# One in `make test`, which has ten minutes; the other two with the long ones.
@pytest.mark.parametrize(
    "seed", [pytest.param(1, marks=pytest.mark.soak), 2, pytest.param(3, marks=pytest.mark.soak)]
)
async def test_a_short_storm_loses_and_doubles_nothing(
    site: Site, seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sorted(kind for kinds in SHORT.values() for kind in kinds) == sorted(KINDS)
    await site.ready()
    # Over within seconds: how far it is at the last fault is a matter of the machine.
    plan = Plan(seed, 600, 120, SHORT[seed], latest=1)
    campaign = await begin(site, f"10654035200010{seed}", "hold", plan, tmp_path)
    async with raging(site, plan, campaign) as storm:
        tell(storm, capsys)
        holds(storm)
        only_held(await storm.settled(campaign), storm.faults)


@pytest.mark.soak
@pytest.mark.timeout(7200)
async def test_a_long_storm_loses_nothing_and_doubles_only_what_was_unknown(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    """Each kind three times, over a campaign under `hold` and one under `resend`."""
    seed, recipients, rate = (
        request.config.getoption(name) for name in ("--seed", "--recipients", "--rate")
    )
    await site.ready()
    kinds = list(KINDS) * 3
    random.Random(seed).shuffle(kinds)
    plan = Plan(seed, recipients // 2, rate // 2, kinds)
    holding = await begin(site, "106540352000201", "hold", plan, tmp_path)
    resending = await begin(site, "106540352000202", "resend", plan, tmp_path)
    async with raging(site, plan, holding, resending) as storm:
        tell(storm, capsys)
        holds(storm)
        only_held(await storm.settled(holding), storm.faults)
        await until(lambda: storm.resent(resending), plan.patience)
        only_resent(await storm.settled(resending), await storm.eye.were_unknown())
