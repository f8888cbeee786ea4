"""Working through dead letters: two people never have one, a replay happens once, and its success closes the letter."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
import pytest

from mainspring import wire
from mainspring.domain.errors import Conflict, Invalid, NotFound
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.params import Param
from mainspring.domain.retry import RetryPolicy
from mainspring.duties.retention import Retention
from mainspring.intake import dead_letters, executions, jobs, replays
from mainspring.store import dead_letters as store
from mainspring.store import fires
from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from mainspring.views import dead_letters as dead_letter_views
from tests.support.dead_letters import ANN, BEN, DeadLetterBench
from tests.support.settling import TENANT

pytestmark = pytest.mark.anyio


@pytest.fixture
def desk(fresh: Database) -> DeadLetterBench:
    return DeadLetterBench(fresh)


async def test_a_claim_keeps_others_out_until_its_time_is_over(desk: DeadLetterBench, virtual: VirtualClock) -> None:
    letter = await desk.letter(await desk.failing())
    claimed = await desk.claim_letter(letter, ANN)
    assert (claimed.claimed_by, claimed.claimed_until) == (ANN, virtual.now + timedelta(minutes=10))
    note = wire.DeadLetterEdit(note="mine")
    for change in (
        desk.claim_letter(letter, BEN),
        desk.replay(letter, by=BEN),
        dead_letters.dismiss(desk.database, letter, reason="x", tenant=TENANT, by=BEN),
        dead_letters.edit(desk.database, letter, note, tenant=TENANT, by=BEN),
    ):
        with pytest.raises(Conflict, match="ann has claimed it until 12:10:00 UTC") as refused:
            await change
        assert refused.value.code == "claimed"
    assert (await desk.replay_many(by=BEN, ids=[letter])).replayed == 0
    assert (await desk.claim_letter(letter, ANN, "20m")).claimed_until == virtual.now + timedelta(minutes=20)
    await virtual.advance(minutes=20)
    assert (await desk.claim_letter(letter, BEN)).claimed_by == BEN
    with pytest.raises(Conflict, match="ben has claimed it"):
        await desk.replay(letter, by=ANN)
    released = await dead_letters.release(desk.database, letter, tenant=TENANT, by=BEN)
    assert released.claimed_by is None
    assert (await desk.replay(letter, by=ANN)).replayed == 1


@pytest.mark.requirement(119)
async def test_what_is_promised_about_dead_letters(desk: DeadLetterBench, virtual: VirtualClock) -> None:
    """The failure is on record whatever becomes of the letter; one person at a time; replay one and many; 14 days."""
    job = await desk.failing()
    execution, session = await desk.submit(job), await desk.session()
    await desk.claim(session)
    async with desk.database.connection() as connection:
        await connection.execute("ALTER TABLE dead_letters ADD CONSTRAINT full_disk CHECK (false)")
        with pytest.raises(asyncpg.CheckViolationError):
            await desk.end(execution, session, "failed", error="no 0")
        assert (await desk.look(execution)).state == "running", "seen, and reported again by its worker"
        await connection.execute("ALTER TABLE dead_letters DROP CONSTRAINT full_disk")
    assert await desk.end(execution, session, "failed", error="no 0")
    assert (await desk.look(execution)).state == "failed"
    letters = sorted([execution, *[await desk.letter(job, f"no {n}") for n in range(1, 5)]])

    await desk.claim_letter(letters[0], ANN, "5m")
    with pytest.raises(Conflict, match="ann has claimed it"):
        await desk.replay(letters[0], by=BEN)
    await virtual.advance(minutes=5)
    assert (await desk.replay(letters[0], by=BEN)).replayed == 1
    with pytest.raises(Conflict, match="replaying, not open"):
        await dead_letters.dismiss(desk.database, letters[0], reason="x", tenant=TENANT, by=ANN)
    assert (await desk.replay_many(by=ANN, job=str(job), limit=3)).replayed == 3
    for _ in range(4):
        await desk.settle_one("succeeded")
    await desk.follow()
    assert await desk.states(*letters) == ["resolved"] * 4 + ["open"]

    retention = Retention(desk.database, leads=lambda: True)
    await virtual.advance(days=13, hours=23)
    await retention.run_once()
    assert await desk.states(*letters) == ["resolved"] * 4 + ["open"]
    await virtual.advance(hours=1)
    await retention.run_once()
    for letter in letters:
        with pytest.raises(NotFound):
            await desk.get(letter)


async def test_people_who_claim_at_once_never_get_the_same(desk: DeadLetterBench) -> None:
    job = await desk.failing()
    letters = {await desk.letter(job) for _ in range(12)}
    asked = wire.DeadLetterClaim(limit=2)
    claimed = await asyncio.gather(
        *(dead_letters.claim(desk.database, asked, tenant=TENANT, by=f"p{n}") for n in range(8))
    )
    got = [letter.dead_letter_id for part in claimed for letter in part]
    assert len(got) == len(set(got)) == 12 and set(got) == letters
    assert all(letter.claimed_by == f"p{n}" for n, part in enumerate(claimed) for letter in part)


async def test_a_double_click_replays_once_and_success_resolves(desk: DeadLetterBench) -> None:
    letter = await desk.letter(await desk.failing())
    answers = await asyncio.gather(*(desk.replay(letter, by=f"p{n % 3}") for n in range(9)))
    made = {answer.items[0].execution_id for answer in answers}
    assert len(made) == 1
    assert await desk.live() == {"queued": 1}
    (replayed,) = made
    assert replayed is not None
    found, old = await desk.look(replayed), await desk.get(letter)
    assert (found.trigger, found.fire_at, old.state, old.replayed_as) == ("replay", old.fire_at, "replaying", replayed)
    assert await desk.follow() is True
    await desk.settle_one("succeeded")
    assert await desk.follow() is False
    done = await desk.get(letter)
    assert (done.state, done.resolved_by) == ("resolved", replayed) and done.closed_at is not None
    assert (await desk.replay(letter)).items[0].execution_id == replayed, "asked again, it is still that one"
    assert await desk.live() == {}


async def test_a_replay_that_fails_has_a_letter_of_its_own_and_its_success_resolves_both(desk: DeadLetterBench) -> None:
    first = await desk.letter(await desk.failing())
    await desk.replay(first)
    second = await desk.settle_one("failed", error="still no")
    await desk.follow()
    assert (await desk.get(second)).replay_of == first
    assert await desk.states(first, second) == ["superseded", "open"]
    await desk.replay(second)
    third = await desk.settle_one("succeeded")
    await desk.follow()
    assert [(await desk.get(letter)).resolved_by for letter in (first, second)] == [third, third]
    assert await desk.states(first, second) == ["resolved", "resolved"]


async def test_a_cancelled_replay_leaves_the_letter_open_for_another(desk: DeadLetterBench) -> None:
    letter = await desk.letter(await desk.failing())
    made = (await desk.replay(letter)).items[0].execution_id
    assert made is not None
    await executions.cancel(desk.database, made, tenant=TENANT, by=ANN, reason="")
    await desk.follow()
    assert await desk.states(letter) == ["open"]
    again = (await desk.replay(letter)).items[0].execution_id
    assert again not in (None, made)
    assert await desk.settle_one("succeeded") == again


async def test_edited_params_are_checked_and_given_to_the_replay(desk: DeadLetterBench) -> None:
    job = await desk.failing(params={"n": Param(type="integer", default=1)})
    letter = await desk.letter(job)
    wrong = wire.DeadLetterEdit(params={"m": 1})
    with pytest.raises(Invalid, match="m"):
        await dead_letters.edit(desk.database, letter, wrong, tenant=TENANT, by=ANN)
    with pytest.raises(Invalid, match="m"):
        await desk.replay(letter, params={"m": 1})
    assert (await desk.get(letter)).new_params is None
    right = wire.DeadLetterEdit(params={"n": 5}, note="n was too small")
    edited = await dead_letters.edit(desk.database, letter, right, tenant=TENANT, by=ANN)
    assert (edited.params, edited.new_params, edited.note, edited.noted_by) == (None, {"n": 5}, "n was too small", ANN)
    await desk.replay(letter)
    assert (await desk.look(await desk.settle_one("succeeded"))).params == {"n": 5}


async def test_a_replay_runs_the_job_as_it_is_now(desk: DeadLetterBench) -> None:
    job = await desk.failing()
    letter = await desk.letter(job)
    name = (await desk.get(letter)).job
    fixed = JobSpec(name=name, task=NoopTask(), retries=RetryPolicy(max=0), description="fixed")
    await jobs.replace_spec(desk.database, job, fixed, tenant=TENANT, by="test")
    await desk.replay(letter)
    done = await desk.look(await desk.settle_one("succeeded"))
    assert (done.version, (await desk.get(letter)).version) == (2, 1)


async def test_a_deleted_job_is_not_replayed(desk: DeadLetterBench) -> None:
    job = await desk.failing()
    letter = await desk.letter(job)
    await jobs.delete(desk.database, job, tenant=TENANT, by="test")
    with pytest.raises(Invalid, match="deleted: dismiss"):
        await desk.replay(letter)
    answer = await desk.replay_many(ids=[letter])
    assert (answer.replayed, answer.refused) == (0, 1) and "deleted" in (answer.items[0].problem or "")
    done = await dead_letters.dismiss(desk.database, letter, reason="gone", tenant=TENANT, by=ANN)
    assert (done.state, done.close_reason, done.closed_by) == ("dismissed", "gone", ANN)


async def test_many_follow_one_another_at_a_rate(desk: DeadLetterBench, virtual: VirtualClock) -> None:
    job = await desk.failing()
    ids = sorted([await desk.letter(job) for _ in range(5)])
    planned = await desk.replay_many(job=str(job), rate="30/1m", dry_run=True)
    assert (planned.dry_run, planned.replayed, await desk.states(*ids)) == (True, 5, ["open"] * 5)
    done = await desk.replay_many(job=str(job), rate="30/1m")
    assert [item.execution_id for item in done.items] == [item.execution_id for item in planned.items]
    assert [item.due_at for item in done.items] == [virtual.now + timedelta(seconds=2 * n) for n in range(5)]
    assert await desk.live() == {"queued": 1, "waiting": 4}
    await virtual.advance(seconds=4)
    async with desk.database.connection() as connection:
        assert await fires.promote_waiting(connection, shards=list(range(64)), limit=10) == 2
    assert (await desk.replay_many(job=str(job))).replayed == 0, "all of them are under way"


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "cancelled"])
async def test_the_rest_follows_the_canary_only_if_it_succeeds(desk: DeadLetterBench, outcome: str) -> None:
    job = await desk.failing()
    ids = sorted([await desk.letter(job) for _ in range(4)])
    answer = await desk.replay_many(job=str(job), canary=True)
    assert (answer.replayed, answer.held, answer.canary) == (1, 3, ids[0])
    assert await desk.states(*ids) == ["replaying", "held", "held", "held"]
    assert await desk.live() == {"queued": 1}
    with pytest.raises(Conflict, match="held"):
        await desk.replay(ids[1])
    await desk.follow()
    assert await desk.live() == {"queued": 1}, "the canary has not ended"
    await desk.settle_one(outcome, error="no")
    assert await desk.follow() is (outcome == "succeeded")
    if outcome == "succeeded":
        assert await desk.live() == {"queued": 3}
        for _ in range(3):
            await desk.settle_one("succeeded")
        await desk.follow()
        assert await desk.states(*ids) == ["resolved"] * 4
    else:
        canary = "superseded" if outcome == "failed" else "open"
        assert await desk.states(*ids) == [canary, "open", "open", "open"]
        assert await desk.live() == {}


async def test_a_canary_that_was_forgotten_holds_nobody(desk: DeadLetterBench) -> None:
    job = await desk.failing()
    ids = sorted([await desk.letter(job) for _ in range(2)])
    await desk.replay_many(job=str(job), canary=True)
    async with desk.database.connection() as connection:
        await connection.execute("DELETE FROM dead_letters WHERE dead_letter_id = $1", ids[0])
    assert await desk.follow() is False
    assert await desk.states(ids[1]) == ["open"]


async def test_many_are_dismissed_for_one_reason(desk: DeadLetterBench) -> None:
    job = await desk.failing()
    ids = [await desk.letter(job, error=error) for error in ("bad row 1", "bad row 2", "other")]
    same = (await desk.get(ids[0])).fingerprint
    asked = wire.DismissMany(job=str(job), fingerprint=same, reason="known")
    plan = wire.DismissMany(job=str(job), fingerprint=same, reason="known", dry_run=True)
    assert (await dead_letters.dismiss_many(desk.database, plan, tenant=TENANT, by=ANN)).dismissed == 2
    assert await desk.states(*ids) == ["open", "open", "open"]
    assert (await dead_letters.dismiss_many(desk.database, asked, tenant=TENANT, by=ANN)).dismissed == 2
    assert await desk.states(*ids) == ["dismissed", "dismissed", "open"]
    with pytest.raises(Conflict, match="dismissed, not open"):
        await desk.replay(ids[0])
    async with desk.database.connection() as connection:
        assert await store.count_open(connection, tenant=TENANT) == 1


async def test_a_choice_must_be_made_and_bad_words_are_explained(desk: DeadLetterBench) -> None:
    letter = await desk.letter(await desk.failing())
    with pytest.raises(Invalid, match="every open dead letter"):
        await desk.replay_many()
    with pytest.raises(Invalid, match="not a rate"):
        await desk.replay_many(ids=[letter], rate="fast")
    with pytest.raises(Invalid, match="out of range"):
        await desk.claim_letter(letter, ANN, "2d")
    with pytest.raises(Invalid, match="reason is required"):
        await dead_letters.dismiss(desk.database, letter, reason=" ", tenant=TENANT, by=ANN)
    with pytest.raises(Invalid, match="use one of open"):
        await dead_letter_views.list_dead_letters(desk.database, tenant=TENANT, states=["closed"])


async def test_another_tenant_sees_and_changes_nothing(desk: DeadLetterBench) -> None:
    letter = await desk.letter(await desk.failing())
    other = TENANT + 1
    for ask in (
        dead_letter_views.get(desk.database, letter, tenant=other),
        dead_letter_views.find(desk.database, str(letter), tenant=other),
        dead_letters.claim_one(desk.database, letter, "1m", tenant=other, by=BEN),
        dead_letters.dismiss(desk.database, letter, reason="x", tenant=other, by=BEN),
        dead_letters.edit(desk.database, letter, wire.DeadLetterEdit(note="x"), tenant=other, by=BEN),
        replays.replay_one(desk.database, letter, wire.ReplayOne(), tenant=other, by=BEN),
    ):
        with pytest.raises(NotFound):
            await ask
    asked = wire.DeadLetterClaim(limit=10)
    assert await dead_letters.claim(desk.database, asked, tenant=other, by=BEN) == []
    assert (await dead_letter_views.list_dead_letters(desk.database, tenant=other)).items == []
    assert await desk.states(letter) == ["open"]
