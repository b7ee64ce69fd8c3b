"""Public ids."""

import time

from shared.domain.ids import uuid7


def test_an_id_is_of_version_7_and_tells_its_time():
    before = time.time_ns() // 1_000_000
    made = uuid7()
    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert before <= made.int >> 80 <= time.time_ns() // 1_000_000


def test_ids_differ():
    assert len({uuid7() for _ in range(1000)}) == 1000
