"""The whole stack as real processes, started once; each test has its own number and campaign."""

import contextlib
import itertools
from collections.abc import AsyncGenerator, Generator, Mapping
from typing import Any

import pytest
from launching import Launch

from services.cli.audience_file import write_audience
from services.cli.stack import Stack
from services.cli.trial import Trial, open_trial

# Short, so that what a killed process held is given up within seconds. A lease must outlive twice
# the longest send.
TUNING = {
    "HEADRACE_CONNECT_TIMEOUT_S": "1",
    "HEADRACE_READ_TIMEOUT_S": "3",
    "HEADRACE_LEASE_S": "8",
}
LOG_LINES = 40


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Generator[Stack]:
    with Stack(tmp_path_factory.mktemp("stack"), TUNING) as running:
        yield running


@pytest.fixture(scope="session")
def numbers() -> Generator[str]:
    return (str(number) for number in itertools.count(106540352000001))


@pytest.fixture
async def launch(stack: Stack, numbers: Generator[str], tmp_path) -> AsyncGenerator[Launch]:
    """A function that starts a campaign through a scenario and returns it while it runs."""
    async with contextlib.AsyncExitStack() as trials:

        async def start(recipients: int, rate: int, scenario: Mapping[str, Any]) -> Trial:
            number = next(numbers)
            # The same people meet other fates under another seed.
            audience = write_audience(tmp_path / f"{number}.csv", recipients, int(number))
            trial = await trials.enter_async_context(open_trial(stack, number, rate, "Test"))
            webhooks = {**scenario.get("webhooks", {}), "url": stack.webhook_url}
            await trial.meta.play({**scenario, "webhooks": webhooks})
            await trial.upload(audience.path)
            await trial.start()
            return trial

        yield start


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    running = getattr(item, "funcargs", {}).get("stack")
    if report.failed and running:
        for process in running.started:
            section = f"log of {process.name} at {process.url}"
            report.sections.append((section, process.last_lines(LOG_LINES)))
    return report
