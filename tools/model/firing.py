"""Firing and takeover: two schedulers, one shard, two jobs, one of them created while the shard is being decided.

Database time is a small number. Job 0 fires at odd instants; job 1 at every instant, once it exists. A scheduler's
memory is its wheel: up to where it has popped instants, and whether it knows job 1. Anything may happen at any time:
no scheduler has to act, so pauses and cut connections need no actions of their own. A commit may succeed without its
scheduler learning of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

LAST = 3
"""The last instant. Three suffice for a takeover, a handover back, and a fire afterwards."""
LEASE = 1
SCHEDULERS = (0, 1)
JOBS = (0, 1)
NOBODY = -1

GUARDS = frozenset(
    {
        "epoch",  # lock_shards compares the epoch
        "owner",  # lock_shards compares the owner
        "watermark",  # instants up to the watermark are left out
        "id",  # the id of a fire is deterministic, and unique among live executions
        "changes",  # a tick loads edits before it decides
        "beat changes",  # a beat moves the watermark only if `changes` is what the wheel has loaded
        "database time",  # nothing beyond database time is decided
        "one transaction",  # fires and watermark are written together
        "row lock",  # the shard row stays locked until the commit
        "takeover",  # shards of dead owners are taken
    }
)


class Shard(NamedTuple):
    owner: int
    epoch: int
    watermark: int
    changes: int
    lease: int


class Scheduler(NamedTuple):
    """`epoch` NOBODY: owns nothing, as far as it knows. `popped`: up to where the wheel was popped for a tick under
    way. `read`: watermark, changes and time that a tick without a row lock has read."""

    alive: bool = True
    epoch: int = NOBODY
    loaded: int = 0
    knows_second: bool = False
    decided: int = 0
    popped: int = NOBODY
    read: tuple[int, int, int] | None = None


class State(NamedTuple):
    """`fires`: for each job and instant the number of executions; `live` tells whether that of job 0 at 1 is
    unfinished. `stale`: a transaction of a scheduler that no longer owns the shard, or owns it under another epoch,
    changed it."""

    now: int
    shard: Shard
    second_from: int
    fires: tuple[int, ...]
    live: bool
    schedulers: tuple[Scheduler, ...]
    faults: int
    stale: bool


class Firing:
    """The model; `guards` are the checks that the statements make."""

    def __init__(self, guards: frozenset[str] = GUARDS, *, faults: int = 1) -> None:
        self.guards = guards
        self.faults = faults

    def initial(self) -> State:
        idle = tuple(Scheduler() for _ in SCHEDULERS)
        return State(0, Shard(NOBODY, 0, 0, 0, 0), NOBODY, (0,) * (len(JOBS) * LAST), False, idle, self.faults, False)

    # Steps ---------------------------------------------------------------------------------------------

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if state.now < LAST:
            yield "time passes", state._replace(now=state.now + 1)
        if state.second_from == NOBODY and state.now < LAST:
            changed = state.shard._replace(changes=state.shard.changes + 1)
            yield "create job", state._replace(second_from=state.now, shard=changed)
        if state.live:
            yield "settle", state._replace(live=False)
        for me in SCHEDULERS:
            mine = state.schedulers[me]
            if mine.alive:
                yield from self._of_living(state, me, mine)
            elif state.shard.owner != me:
                yield f"join {me}", put(state, me, Scheduler())

    def _of_living(self, state: State, me: int, mine: Scheduler) -> Iterator[tuple[str, State]]:
        yield f"beat {me}", self._beat(state, me, mine)
        if self._may_take(state, me):
            yield f"take {me}", take(state, me)
        if state.faults:
            yield f"crash {me}", put(state, me, Scheduler(alive=False))._replace(faults=state.faults - 1)
        if mine.epoch == NOBODY:
            return
        if mine.epoch == state.shard.epoch and state.shard.owner == me and mine.popped == NOBODY:
            peer = 1 - me
            if state.schedulers[peer].alive and state.shard.epoch < LAST:
                yield f"hand over {me} to {peer}", hand_over(state, me, peer)
        clock = min(LAST, state.now + me)  # the clock of scheduler 1 is ahead
        if mine.popped == NOBODY and clock > mine.decided:
            due = mine.knows_second or any(at % 2 for at in range(mine.decided + 1, clock + 1))
            yield f"pop {me}", put(state, me, mine._replace(popped=clock) if due else mine._replace(decided=clock))
        if mine.popped != NOBODY:
            yield from self._tick(state, me, mine)

    def _may_take(self, state: State, me: int) -> bool:
        shard = state.shard
        if shard.owner in (NOBODY, me):
            return shard.owner == NOBODY
        # Of changes of owner that nothing enforces there are a few only; otherwise epochs would grow for ever.
        expired = shard.lease < state.now and shard.epoch < LAST
        return "takeover" in self.guards and (expired or not state.schedulers[shard.owner].alive)

    def _beat(self, state: State, me: int, mine: Scheduler) -> State:
        """Renew the lease; move the watermark if nothing was due; take in shards that a peer handed over."""
        shard = state.shard
        if shard.owner != me:
            return put(state, me, mine if mine.epoch == NOBODY else Scheduler())
        if mine.epoch != shard.epoch and mine.popped == NOBODY:
            return put(state, me, take_in(state, mine))
        known = mine.loaded == shard.changes or "beat changes" not in self.guards
        if mine.epoch == shard.epoch and known:
            shard = shard._replace(watermark=max(shard.watermark, min(mine.decided, state.now)))
        return state._replace(shard=shard._replace(lease=min(LAST, state.now + LEASE)))

    def _tick(self, state: State, me: int, mine: Scheduler) -> Iterator[tuple[str, State]]:
        """The firing transaction. Its row lock makes it atomic; without the lock it reads first and writes later."""
        shard = state.shard
        if mine.read is None:
            fits = shard.owner == me or "owner" not in self.guards
            if not fits or (mine.epoch != shard.epoch and "epoch" in self.guards):
                yield f"tick {me}: not the owner", put(state, me, Scheduler())
                return
            read = (shard.watermark, shard.changes, state.now)
            if "row lock" not in self.guards:
                yield f"tick {me}: read", put(state, me, mine._replace(read=read))
                return
            mine = mine._replace(read=read)
        after = self._decide(state, me, mine)
        yield f"tick {me}: commit", after
        if state.faults:
            unknown = put(after, me, mine._replace(popped=NOBODY, read=None))  # the fires go back to the wheel
            yield f"tick {me}: commit, answer lost", unknown._replace(faults=state.faults - 1)
            if "one transaction" not in self.guards:
                moved = state._replace(shard=after.shard)
                yield f"tick {me}: crash", put(moved, me, Scheduler(alive=False))._replace(faults=state.faults - 1)

    def _decide(self, state: State, me: int, mine: Scheduler) -> State:
        assert mine.read is not None
        watermark, changes, now = mine.read
        upto = min(mine.popped, now) if "database time" in self.guards else mine.popped
        second = mine.knows_second or ("changes" in self.guards and changes > mine.loaded)
        edited = second and not mine.knows_second
        fires, live = list(state.fires), state.live
        for job in JOBS:
            if job == 1 and not second:
                continue
            after = watermark if job == 1 and edited else mine.decided
            for at in range(after + 1, upto + 1):
                if (at <= watermark and "watermark" in self.guards) or not fires_at(state, job, at):
                    continue
                known = fires[index(job, at)] and ((job, at) != (0, 1) or live)
                if not (known and "id" in self.guards):
                    fires[index(job, at)] = min(2, fires[index(job, at)] + 1)
                    live = live or (job, at) == (0, 1)
        shard = state.shard._replace(watermark=max(state.shard.watermark, upto))
        stale = state.stale or (shard.owner, shard.epoch) != (me, mine.epoch)
        after_state = state._replace(shard=shard, fires=tuple(fires), live=live, stale=stale)
        loaded = mine._replace(loaded=changes, knows_second=second, decided=upto, popped=NOBODY, read=None)
        return put(after_state, me, loaded)

    # Invariants ----------------------------------------------------------------------------------------

    def of_state(self) -> Mapping[str, Callable[[State], bool]]:
        return {
            "I1 one execution per fire": lambda s: max(s.fires) < 2,
            "I3 no hole below the watermark": no_hole,
            "I4 never early": lambda s: (
                not any(s.fires[index(j, at)] for j in JOBS for at in range(s.now + 1, LAST + 1))
            ),
            "I17 only the owner decides": lambda s: not s.stale,
        }

    def of_step(self) -> Mapping[str, Callable[[State, State], bool]]:
        return {"I17 epochs only grow": lambda before, after: after.shard.epoch >= before.shard.epoch}

    def progress(self) -> tuple[str, Callable[[State], bool]]:
        return "I2 no instant stays undecided", lambda s: s.shard.watermark == LAST


def index(job: int, at: int) -> int:
    return job * LAST + at - 1


def fires_at(state: State, job: int, at: int) -> bool:
    """Whether an instant is due for a job: what an oracle knows."""
    return at % 2 == 1 if job == 0 else state.second_from != NOBODY and at > state.second_from


def no_hole(state: State) -> bool:
    decided = range(1, state.shard.watermark + 1)
    return all(state.fires[index(job, at)] for job in JOBS for at in decided if fires_at(state, job, at))


def put(state: State, me: int, mine: Scheduler) -> State:
    return state._replace(schedulers=(*state.schedulers[:me], mine, *state.schedulers[me + 1 :]))


def take_in(state: State, mine: Scheduler) -> Scheduler:
    """Load the wheel of a shard from its watermark."""
    shard = state.shard
    return Scheduler(True, shard.epoch, shard.changes, state.second_from != NOBODY, shard.watermark)


def take(state: State, me: int) -> State:
    lease = min(LAST, state.now + LEASE)
    taken = state._replace(shard=state.shard._replace(owner=me, epoch=state.shard.epoch + 1, lease=lease))
    return put(taken, me, take_in(taken, state.schedulers[me]))


def hand_over(state: State, me: int, peer: int) -> State:
    lease = min(LAST, state.now + LEASE)
    given = state._replace(shard=state.shard._replace(owner=peer, epoch=state.shard.epoch + 1, lease=lease))
    return put(given, me, Scheduler())
