"""A failed run leaves one dead letter to act on: what is decided about it holds for those of its steps."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring import wire
from mainspring.intake import dead_letters, replays
from mainspring.intake import runs as run_actions
from mainspring.store import dead_letters as store
from mainspring.store.db import Database
from mainspring.views import dead_letters as dead_letter_views
from tests.support.runs import TENANT, RunBench

pytestmark = pytest.mark.anyio

WHO: dict[str, Any] = {"tenant": TENANT, "by": "a new user"}


@pytest.fixture
def bench(fresh: Database) -> RunBench:
    return RunBench(fresh)


async def failed(bench: RunBench) -> wire.Run:
    steps = {"load": {}, "each": {"map": "[1, 2]", "max_failed": 2}, "end": {"needs": ["load"]}}
    run = await bench.begin("nightly", steps)
    await bench.work(lambda _: "failed")
    return await bench.get(run)


async def letters(bench: RunBench) -> dict[str, wire.DeadLetter]:
    """By step, or by workflow."""
    found = await dead_letter_views.list_dead_letters(bench.database, tenant=TENANT)
    return {f"{letter.step or letter.job} {letter.dead_letter_id}": letter for letter in found.items}


async def states(bench: RunBench) -> list[tuple[str, str]]:
    return sorted((name.partition(" ")[0], letter.state) for name, letter in (await letters(bench)).items())


async def open_letters(bench: RunBench) -> int:
    async with bench.database.connection() as connection:
        return await store.count_open(connection, tenant=TENANT)


async def test_one_is_to_act_on_and_the_others_are_tied_to_it(bench: RunBench) -> None:
    run = await failed(bench)
    assert run.state == "partial"
    found = await letters(bench)
    assert sorted((n.partition(" ")[0], letter.run_id == run.run_id) for n, letter in found.items()) == [
        ("nightly", False),
        ("nightly.each", True),
        ("nightly.each", True),
        ("nightly.load", True),
    ]
    assert sorted({letter.title for letter in found.values()}) == ["nightly", "nightly / each", "nightly / load"]
    assert await open_letters(bench) == 1
    groups = (await dead_letter_views.list_groups(bench.database, tenant=TENANT)).items
    assert [(group.job, group.count) for group in groups] == [("nightly", 1)]
    claimed = await dead_letters.claim(bench.database, wire.DeadLetterClaim(limit=10), **WHO)
    assert [letter.job for letter in claimed] == ["nightly"]


async def test_while_the_run_goes_on_the_letter_of_a_step_stands_for_itself(bench: RunBench) -> None:
    await bench.begin("open", {"load": {}, "sign": {"approval": {}}})
    await bench.work(lambda _: "failed")
    ((_, letter),) = (await letters(bench)).items()
    assert (letter.step, letter.run_id, await open_letters(bench)) == ("open.load", None, 1)


async def test_to_dismiss_it_dismisses_all(bench: RunBench) -> None:
    run = await failed(bench)
    await dead_letters.dismiss(bench.database, run.run_id, reason="known", **WHO)
    assert {state for _, state in await states(bench)} == {"dismissed"}


async def test_a_replay_supersedes_those_of_the_steps(bench: RunBench) -> None:
    run = await failed(bench)
    await replays.replay_one(bench.database, run.run_id, wire.ReplayOne(), **WHO)
    assert await states(bench) == [
        ("nightly", "replaying"),
        ("nightly.each", "superseded"),
        ("nightly.each", "superseded"),
        ("nightly.load", "superseded"),
    ]
    await bench.work()
    await replays.follow_replays(bench.database)
    assert (await states(bench))[0] == ("nightly", "resolved")


async def test_to_repeat_the_run_is_to_handle_its_letter(bench: RunBench) -> None:
    run = await failed(bench)
    again = await run_actions.rerun(bench.runs, run.run_id, wire.Rerun(), **WHO)
    assert await open_letters(bench) == 0
    await bench.work()
    assert (await bench.get(again)).state == "succeeded"
    await replays.follow_replays(bench.database)
    assert {state for _, state in await states(bench)} == {"resolved", "superseded"}


async def test_what_somebody_else_has_claimed_stays_theirs(bench: RunBench) -> None:
    run = await failed(bench)
    await dead_letters.claim_one(bench.database, run.run_id, "1h", tenant=TENANT, by="another")
    await run_actions.rerun(bench.runs, run.run_id, wire.Rerun(), **WHO)
    assert (await states(bench))[0] == ("nightly", "open")


async def test_runs_inside_runs_are_handled_with_the_outermost(bench: RunBench) -> None:
    await bench.apply("inner", {"deep": {}})
    run = await bench.begin("outer", {"sub": {"workflow": "inner"}})
    await bench.work(lambda _: "failed")
    assert await open_letters(bench) == 1
    assert len(await letters(bench)) == 3
    await dead_letters.dismiss(bench.database, run.run_id, reason="known", **WHO)
    assert {state for _, state in await states(bench)} == {"dismissed"}
