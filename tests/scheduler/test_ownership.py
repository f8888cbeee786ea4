"""The spread of shards over schedulers: even, the same for everybody, and moving little."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from mainspring.ids import SHARDS
from mainspring.scheduler.ownership import MAX_UNOWNED_BEATS, assign_shards, ownership_changes, successors
from mainspring.store.shards import Shard, ShardView

ids = st.uuids(version=4)
groups = st.sets(ids, min_size=1, max_size=12)

MORE = 10
"""So many shards may move beyond those that have to: the price of even loads. 8 were seen in 400 random joins."""


@given(groups)
def test_every_shard_has_an_owner_and_loads_differ_by_one(schedulers: set[UUID]) -> None:
    owners = assign_shards(schedulers)
    assert set(owners) == set(range(SHARDS))
    loads = Counter(owners.values())
    assert len(loads) == len(schedulers)
    assert max(loads.values()) - min(loads.values()) <= 1


@given(st.lists(ids, min_size=1, max_size=8, unique=True), st.randoms())
def test_everybody_computes_the_same(schedulers: list[UUID], random: object) -> None:
    shuffled = sorted(schedulers, key=lambda s: random.random())  # type: ignore[attr-defined]
    assert assign_shards(schedulers) == assign_shards(shuffled)


@given(groups, ids)
def test_a_join_and_a_leave_move_little_more_than_they_must(schedulers: set[UUID], new: UUID) -> None:
    before, after = assign_shards(schedulers), assign_shards({*schedulers, new})
    moved = {s for s in range(SHARDS) if before[s] != after[s]}
    must = {s for s in range(SHARDS) if after[s] == new} if new not in schedulers else set()
    assert must <= moved
    assert len(moved - must) <= MORE


def test_three_get_a_third_each() -> None:
    three = [UUID(int=n) for n in range(3)]
    assert sorted(Counter(assign_shards(three).values()).values()) == [21, 21, 22]


def test_nobody_owns_nothing() -> None:
    assert assign_shards([]) == {}


# The plan: what one scheduler does about it ---------------------------------------------------------

ME, PEER, DEAD = UUID(int=1), UUID(int=2), UUID(int=3)


def view_of(owner: UUID | None, *, held: bool, peers: set[UUID]) -> ShardView:
    return ShardView(0, frozenset(peers), [Shard(n, owner, 1, 0, 0, held) for n in range(SHARDS)])


def test_alone_it_takes_everything_free_and_gives_nothing() -> None:
    wanted = ownership_changes(view_of(None, held=False, peers=set()), ME, {})
    assert len(wanted.take) == SHARDS and wanted.give == {}


def test_it_takes_from_the_dead_only_what_is_its_own_to_own() -> None:
    wanted = ownership_changes(view_of(DEAD, held=False, peers={PEER}), ME, {})
    assert {s.shard for s in wanted.take} == {s for s, owner in assign_shards({ME, PEER}).items() if owner == ME}
    assert len(wanted.take) == SHARDS // 2


def test_what_nobody_takes_for_long_it_takes_too() -> None:
    patience = dict.fromkeys(range(SHARDS), MAX_UNOWNED_BEATS)
    assert len(ownership_changes(view_of(DEAD, held=False, peers={PEER}), ME, patience).take) == SHARDS


def test_it_takes_nothing_from_the_living() -> None:
    assert ownership_changes(view_of(PEER, held=True, peers={PEER}), ME, {}).take == []


def test_it_gives_a_newcomer_its_share() -> None:
    wanted = ownership_changes(view_of(ME, held=True, peers={PEER}), ME, {})
    assert wanted.take == [] and set(wanted.give.values()) == {PEER} and len(wanted.give) == SHARDS // 2


def test_who_leaves_gives_everything_to_the_others_or_to_nobody() -> None:
    left = successors(view_of(ME, held=True, peers={PEER, DEAD}), ME)
    assert Counter(heir for _, _, heir in left) == {PEER: 32, DEAD: 32}
    alone = successors(view_of(ME, held=True, peers=set()), ME)
    assert {heir for _, _, heir in alone} == {None} and len(alone) == SHARDS
