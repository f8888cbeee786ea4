"""The checkers of the fault tests find violations that are planted by hand: a check that can't fail shows nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import pytest

from mainspring.domain.schedule.schedule import Schedule
from tests.support.cron_agreement import agrees
from tests.support.cron_expressions import ms
from tests.support.cron_oracle import Oracle
from tests.support.evidence import Line, check
from tests.support.fire_checker import Verdict, compare

START = datetime(2026, 1, 1, tzinfo=UTC)
JOB = UUID(int=1)


def fires(*at_s: int, early_s: float = 0.0) -> list[dict[str, Any]]:
    """Rows of a job that fires every ten seconds."""
    instants = [START + timedelta(seconds=s) for s in at_s]
    queued = [at + timedelta(seconds=0.1 - early_s) for at in instants]
    return [
        {"job_id": JOB, "fire_at": at, "queued_at": when, "state": "queued", "reason": None, "fires": 1}
        for at, when in zip(instants, queued, strict=True)
    ]


def judged(rows: list[dict[str, Any]], *, upto_s: int = 35) -> Verdict:
    jobs = [{"job_id": JOB, "name": "job-10", "shard": 3, "active_from": START, "paused_at": None}]
    watermarks = {3: START + timedelta(seconds=upto_s)}
    return compare(Verdict(), jobs, rows, watermarks, lambda name: int(name.split("-")[1]))


def test_a_complete_set_of_fires_is_clean() -> None:
    assert judged(fires(10, 20, 30)).clean


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        (fires(10, 30), "missed"),
        (fires(10, 20, 20, 30), "doubled"),
        (fires(10, 20, 30, 40), "invented"),
        (fires(10, 15, 20, 30), "invented"),
        (fires(10, 20, 30, early_s=0.2), "early"),
    ],
)
def test_a_planted_fire_is_found(rows: list[dict[str, Any]], kind: str) -> None:
    verdict = judged(rows)
    assert not verdict.clean and getattr(verdict, kind)
    with pytest.raises(AssertionError, match="missed, doubled, invented, early"):
        verdict.demand("planted")


EVIDENCE = [Line("start", "a", 1, 1.0), Line("end", "a", 1, 2.0), Line("start", "a", 2, 3.0), Line("end", "a", 2, 4.0)]
ROWS = {"a": '{"n": 1}', "b": '{"n": 2}'}


def test_serial_attempts_and_kept_writes_are_clean() -> None:
    assert check(EVIDENCE, ROWS, ROWS).none
    killed = [line for line in EVIDENCE if line != Line("end", "a", 1, 2.0)]
    assert check(killed, ROWS, ROWS, killed=frozenset({("a", 1)})).none


def test_a_double_start_is_found() -> None:
    assert check([*EVIDENCE, Line("start", "a", 2, 5.0)], ROWS, ROWS).doubled == ["a"]


def test_a_second_start_of_at_most_once_is_found() -> None:
    assert check(EVIDENCE, ROWS, ROWS, at_most_once=frozenset({"a"})).repeated == ["a"]


def test_an_overlap_is_found() -> None:
    late = [replace(line, at_s=3.5) if line == EVIDENCE[1] else line for line in EVIDENCE]
    assert check(late, ROWS, ROWS).overlapping == ["a"]
    without_end = [line for line in EVIDENCE if line != EVIDENCE[1]]
    assert check(without_end, ROWS, ROWS).overlapping == ["a"], "nobody killed it, so it may still run"


def test_a_start_before_its_time_is_found() -> None:
    assert check(EVIDENCE, ROWS, ROWS, due={"a": 1.0}).none
    offences = check(EVIDENCE, ROWS, ROWS, due={"a": 1.5})
    assert offences.early == ["a"] and not offences.none


def test_an_orphan_is_found() -> None:
    assert check([*EVIDENCE, Line("start", "c", 1, 5.0)], ROWS, ROWS).orphans == ["c"]


@pytest.mark.parametrize("rows", [{"a": '{"n": 1}'}, {"a": '{"n": 1}', "b": '{"n": 3}'}])
def test_a_lost_or_changed_acknowledged_write_is_found(rows: dict[str, str]) -> None:
    assert check(EVIDENCE, rows, ROWS).lost == ["b"]


class Claimed:
    """What an engine would say that fires at these instants."""

    def __init__(self, fires: list[int]) -> None:
        self.fires = fires

    def between(self, start: int, end: int, limit: int) -> list[int]:
        return [fire for fire in self.fires if start < fire <= end][:limit]

    def count_between(self, start: int, end: int) -> int:
        return len(self.between(start, end, len(self.fires)))

    def next_after(self, at: int) -> int | None:
        return min((fire for fire in self.fires if fire > at), default=None)

    def prev_before(self, at: int) -> int | None:
        return max((fire for fire in self.fires if fire < at), default=None)


# Half past two in Berlin does not exist on the second of these days.
BERLIN = [
    datetime(2027, 3, 27, 1, 30, tzinfo=UTC),
    datetime(2027, 3, 28, 1, 0, tzinfo=UTC),
    datetime(2027, 3, 29, 0, 30, tzinfo=UTC),
]
RIGHT = [ms(at) for at in BERLIN]


def agree(fires: list[int]) -> list[int]:
    oracle = Oracle("30 2 * * *", "Europe/Berlin", gap="next_valid", overlap_hour="first", day_and=False)
    window = datetime(2027, 3, 27, tzinfo=UTC), datetime(2027, 3, 30, tzinfo=UTC)
    return agrees(oracle, cast(Schedule, Claimed(fires)), *window)


def test_the_oracle_of_cron_agrees_with_a_calendar() -> None:
    assert agree(RIGHT) == RIGHT


@pytest.mark.parametrize(
    "fires",
    [[RIGHT[0], RIGHT[2]], [RIGHT[0], *RIGHT], [RIGHT[0] - 60_000, *RIGHT[1:]], [*RIGHT, RIGHT[2] + 60_000]],
    ids=["missed", "doubled", "early", "invented"],
)
def test_the_oracle_of_cron_finds_a_planted_fire(fires: list[int]) -> None:
    with pytest.raises(AssertionError):
        agree(fires)
