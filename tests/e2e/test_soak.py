"""A long campaign through the storm, with one process killed after the other."""

import pytest
from launching import Launch
from test_campaign import at_least, ids_in, ids_of
from waiting import until

from services.cli.comparison import Comparison
from services.cli.stack import Stack
from services.cli.weather import EXCUSES, stormy
from shared.domain.status import Status

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]
RECIPIENTS, RATE = 20_000, 200
KILLS = 8


def kill_ingest(stack: Stack) -> None:
    port = stack.ingest.port
    stack.ingest.kill()
    stack.ingest = stack.start_ingest(port)


async def test_kill_after_kill_loses_and_doubles_nothing(stack: Stack, launch: Launch) -> None:
    # The stack's own sender runs on beside those that are killed: it answers the test's questions.
    victim = stack.start_sender()
    trial = await launch(RECIPIENTS, RATE, stormy(11, RECIPIENTS, RATE))
    in_doubt: set[int] = set()
    for turn in range(KILLS):
        await until(at_least(trial, (turn + 1) * RECIPIENTS // (KILLS + 2)), 300)
        if turn % 2:
            kill_ingest(stack)
        else:
            victim.kill()
            in_doubt |= await ids_in(trial, Status.CLAIMED)
            victim = stack.start_sender()
    assert await trial.settle(300)
    outcome = await trial.compare(EXCUSES)

    seen = outcome.comparison
    assert outcome.counts == outcome.statuses
    assert len(outcome.rows) == RECIPIENTS
    assert set(seen.unknown_extra) <= in_doubt
    assert seen == Comparison(unknown_extra=seen.unknown_extra)
    assert len(ids_of(outcome, Status.UNKNOWN)) < RECIPIENTS // 20
