"""How long a refused message waits."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.sender.pipeline.backoff import delay_s
from services.sender.pipeline.outcome import Retry

SPENT = st.integers(min_value=0, max_value=32_767)


@given(SPENT, st.sampled_from([None, 1, 2, 131000, 131016]))
def test_full_jitter_within_the_doubling_bound(spent: int, code: int | None) -> None:
    assert 0 <= delay_s(Retry(code, "meta"), spent) <= min(300, 2**spent)


@pytest.mark.parametrize(("spent", "bound"), [(0, 1), (3, 8), (8, 256), (9, 300), (40, 300)])
def test_the_jitter_fills_its_range(spent: int, bound: float) -> None:
    delays = [delay_s(Retry(131000, "meta"), spent) for _ in range(500)]

    assert min(delays) < bound * 0.1
    assert max(delays) > bound * 0.9


@given(SPENT, st.timedeltas(timedelta(seconds=1), timedelta(days=2)))
def test_a_code_that_asks_for_a_time_gets_it(spent: int, later: timedelta) -> None:
    least = later.total_seconds()

    assert least <= delay_s(Retry(131049, "meta", later), spent) <= least * 1.1


@given(SPENT)
def test_the_pair_limit_grows_by_four_up_to_half_an_hour(spent: int) -> None:
    least = min(1800, 6 * 4**spent)

    assert least <= delay_s(Retry(131056, "meta", timedelta(seconds=6)), spent) <= least * 1.1


DRAWS = 10_000
# The distance of a uniform sample of this size from its law exceeds this once in some millions.
FAR = 0.028


@pytest.mark.parametrize("spent", range(12))
def test_each_delay_is_as_likely_as_any_other(spent: int) -> None:
    bound = min(300, 2**spent)
    delays = sorted(delay_s(Retry(131000, "meta"), spent) for _ in range(DRAWS))

    assert delays[0] >= 0
    assert delays[-1] <= bound
    distance = max(abs(delay / bound - place / DRAWS) for place, delay in enumerate(delays))
    assert distance < FAR
