"""How Redis' clock is told from ours."""

import pytest

from services.sender.pipeline.bucket import Clocks


def test_the_quickest_exchange_is_believed() -> None:
    clocks = Clocks()

    assert clocks.add(10.0, 10.4, 1010.0) == pytest.approx(999.8)
    assert clocks.add(11.0, 11.002, 1011.0) == pytest.approx(999.999)
    assert clocks.add(12.0, 12.4, 1012.0) == pytest.approx(999.999)


@pytest.mark.parametrize("step", [3600.0, -3600.0, 0.1])
def test_a_clock_that_was_set_is_followed_at_once(step: float) -> None:
    clocks = Clocks()
    for second in range(100):
        clocks.add(second, second + 0.002, 1000.001 + second)

    assert clocks.add(100, 100.02, 1100.01 + step) == pytest.approx(1000 + step)
