from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.errors import Invalid
from mainspring.domain.filter import ExecutionFilter, JobFilter, execution_filter, job_filter, spell

NOW = 1_800_000_000_000


def test_every_field_of_executions() -> None:
    fields = "state:failed,lost state:queued job:report queue:long since:24h ended:1h trigger:manual label:team=finance"
    text = f'{fields} "two words"'
    assert execution_filter(text, NOW) == ExecutionFilter(
        texts=("two words",),
        states=("failed", "lost", "queued"),
        jobs=("report",),
        queues=("long",),
        triggers=("manual",),
        since_ms=NOW - 86_400_000,
        labels={"team": "finance"},
        ended_ms=NOW - 3_600_000,
    )


def test_every_field_of_jobs() -> None:
    assert job_filter("state:paused name:night queue:short kind:http label:zone=eu back up") == JobFilter(
        texts=("back", "up"),
        names=("night",),
        states=("paused",),
        queues=("short",),
        kinds=("http",),
        labels={"zone": "eu"},
    )
    assert not job_filter("  ")
    assert not execution_filter("", NOW)


@pytest.mark.parametrize(
    ("text", "since"),
    [
        ("since:1h", NOW - 3_600_000),
        ("since:90", NOW - 90_000),
        ("since:2027-01-01", 1_798_761_600_000),
        ("since:2027-01-01T01:00+01:00", 1_798_761_600_000),
        ("since:2d since:1h", NOW - 3_600_000),
    ],
)
def test_since(text: str, since: int) -> None:
    assert execution_filter(text, NOW).since_ms == since


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("sate:failed", "unknown field 'sate'", "did you mean 'state'?"),
        ("wibble:failed", "unknown field 'wibble'", "known fields: state, job"),
        ("state:faled", "'faled' is not a state", "did you mean 'failed'?"),
        ("state:zzz", "'zzz' is not a state", "one of waiting"),
        ("job:", "job: a value is missing", "write job:report"),
        ("since:yesterday", "'yesterday' is not a time", "write since:24h"),
        ("label:team", "'team' is not a label", "write label:team=finance"),
        ("x" * 1001, "more than 1,000 characters", "shorten it"),
    ],
)
def test_what_is_wrong_is_pointed_at(text: str, says: str, hint: str) -> None:
    with pytest.raises(Invalid) as raised:
        execution_filter(text, NOW)
    (problem,) = raised.value.problems
    assert says in problem.message
    assert hint in problem.hint


def test_the_caret_stands_below_the_word() -> None:
    with pytest.raises(Invalid) as raised:
        job_filter("night state:nope long")
    assert raised.value.message == "'nope' is not a state\n  night state:nope long\n        ^^^^^^^^^^"


@given(st.text(max_size=200))
def test_anything_is_read_or_refused(text: str) -> None:
    for read in (job_filter, lambda t: execution_filter(t, NOW)):
        with contextlib.suppress(Invalid):
            read(text)


def test_a_filter_is_spelled() -> None:
    assert spell(state=("failed", "lost"), job="a b", queue="") == 'state:failed,lost job:"a b"'
