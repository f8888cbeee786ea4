"""The state machine as data, and ids that everybody computes alike."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.execution import (
    FAILED,
    FINAL,
    LIVE,
    OUTCOMES,
    STATES,
    TRANSITIONS,
    can_change,
    execution_id,
    fire_key,
    fire_ms_of,
    is_step,
    new_id_suffix_bytes,
    new_id_suffixes,
)
from mainspring.domain.settlement import AttemptResult, Final
from mainspring.store.db import Database
from tools.tree import SOURCE


def following(state: object) -> set[str]:
    return {t.after for t in TRANSITIONS if t.before == state}


def test_every_state_is_live_or_final() -> None:
    assert set(STATES) == LIVE | FINAL
    assert not LIVE & FINAL
    assert FAILED < FINAL


def test_a_final_state_never_changes() -> None:
    assert not {t.before for t in TRANSITIONS} & FINAL
    assert not any(can_change(state, after) for state in FINAL for after in STATES)


def test_every_state_is_reached_and_every_live_one_can_be_left_for_a_final_one() -> None:
    reached: set[object] = set()
    ahead: list[object] = [None]
    while ahead:
        for state in following(ahead.pop()):
            if state not in reached:
                reached.add(state)
                ahead.append(state)
    assert reached == set(STATES)
    for state in LIVE - {"running"}:
        assert can_change(state, "cancelled")
    assert following("running") >= (FINAL - {"skipped"})


def test_only_a_new_or_queued_execution_starts_and_only_a_running_one_succeeds_or_fails() -> None:
    assert {t.before for t in TRANSITIONS if t.after == "running"} == {None, "queued"}
    for ending in ("succeeded", *FAILED):
        assert {t.before for t in TRANSITIONS if t.after == ending} == {"running"}


def test_a_verdict_must_be_a_legal_transition() -> None:
    ended = AttemptResult(uuid4(), 1, uuid4(), "failed")
    assert Final(ended, "failed", None).leaves_dead_letter and not Final(ended, "cancelled", None).leaves_dead_letter
    for state in (*LIVE, "skipped"):
        with pytest.raises(ValueError, match=f"as {state}"):
            Final(ended, state, None)


def test_an_outcome_is_a_state_or_gives_the_execution_back() -> None:
    assert set(OUTCOMES) - FINAL == {"preempted"}


def test_the_database_knows_the_same_states() -> None:
    schema = (SOURCE / "store" / "schema.sql").read_text()

    def allowed(constraint: str) -> set[str]:
        found = re.search(rf"{constraint} CHECK \(\w+ IN \(([^)]*)\)", schema)
        assert found is not None
        return set(re.findall(r"'(\w+)'", found[1]))

    assert allowed("executions_state") == LIVE
    assert allowed("history_state") == FINAL


@given(st.uuids(), st.integers(0, 2**48 - 1), st.text(max_size=20))
def test_an_id_is_valid_ordered_by_time_and_the_same_for_everybody(job: UUID, ms: int, key: str) -> None:
    found = execution_id(job, ms, key)
    assert found == execution_id(job, ms, key)
    assert (found.version, found.variant) == (8, "specified in RFC 4122")
    assert fire_ms_of(found) == ms
    if ms:
        assert execution_id(job, ms - 1, key) < found


def test_another_job_instant_or_key_is_another_id() -> None:
    job, other = uuid4(), uuid4()
    ids = {execution_id(j, ms, key) for j in (job, other) for ms in (1, 2) for key in ("a", "b")}
    assert len(ids) == 8
    assert fire_key(1) != fire_key(2)


@pytest.mark.parametrize("ms", [0, 1, 1_794_831_600_000, 253_402_300_799_999])
async def test_the_database_computes_the_same_id(database: Database, ms: int) -> None:
    job = uuid4()
    async with database.connection() as connection:
        found = await connection.fetchval("SELECT execution_id($1, $2::uuid, $3)", f"{ms:012x}", job, fire_key(ms))
    assert found == execution_id(job, ms, fire_key(ms))


@pytest.mark.parametrize("new", [new_id_suffixes, lambda n: [suffix.hex() for suffix in new_id_suffix_bytes(n)]])
def test_executions_that_a_process_creates_in_one_millisecond_keep_their_order(new: Callable[[int], list[str]]) -> None:
    suffixes = [suffix for _ in range(50) for suffix in new(20)]
    ids = [UUID(f"{1_700_000_000_000:012x}{suffix}") for suffix in suffixes]
    turns = sum(later < earlier for earlier, later in itertools.pairwise(ids))
    assert turns <= 1, "the counter of 24 bits may turn over once"
    assert len(set(ids)) == 1000
    assert all(i.version == 8 and not is_step(i) for i in ids)
