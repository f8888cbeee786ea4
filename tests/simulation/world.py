"""The simulated cluster: processes, a network between them, one clock, and the steps that happen to them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from unittest.mock import patch
from uuid import UUID

from mainspring.dispatch import heartbeat
from mainspring.dispatch import service as dispatch_service
from mainspring.domain import execution
from mainspring.domain.job import JobSpec, Misfire, NoopTask
from mainspring.domain.limit import Concurrency
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.domain.settlement import AttemptResult
from mainspring.intake import jobs
from mainspring.scheduler import herd
from mainspring.store.db import Database
from mainspring.testing.clock import START, VirtualClock
from tests.simulation.bus import SimulatedBus
from tests.simulation.checks import RESET, offences
from tests.simulation.processes import Activity, Process
from tests.simulation.servers import TENANT, ApiProcess, SchedulerProcess
from tests.simulation.workers import GIVE_UP_S, Evidence, ModelWorker

SCHEDULERS, APIS, WORKERS = 2, 2, 3
ROUND_S = 1.5
HEAL_ROUNDS = 34
"""Calm rounds at the end: 51 s, in which every lease of a process that has died ends and everything due is decided."""
MOST_JOBS = 10


class Violation(AssertionError):
    """A guarantee did not hold."""


@dataclass(frozen=True)
class Step:
    """One step of a run. Its numbers select processes and messages, modulo how many there are."""

    what: str
    a: int
    b: int
    n: int  # its place in the original run, which seeds its random decisions

    def __str__(self) -> str:
        return f"{self.n}:{self.what}({self.a},{self.b})"


@dataclass
class Message:
    receiver: str  # a worker; or "api"
    sender: str
    kind: str
    body: dict[str, Any]
    stream: str | None
    sent: float


WEIGHTS = {
    "calm": 22, "advance": 14, "lease": 8, "decide": 10, "claim": 8, "save": 3, "act": 10, "deliver": 16, "turn": 16,
    "lose_before": 3, "lose_answer": 5, "drop": 3, "duplicate": 4, "kill_scheduler": 2, "kill_api": 1, "kill_worker": 2,
    "submit": 5, "add_job": 1, "misreport": 4, "pause": 3, "regain": 2,
}  # fmt: skip
ADVANCES = (0.2, 0.5, 1.0, 1.0, 2.0, 3.0, 6.0, 11.0, 16.0, 21.0)


def plan(seed: int, steps: int) -> list[Step]:
    """Return the steps of a seed."""
    rng = random.Random(seed)
    names = rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=steps)
    return [Step(name, rng.randrange(1 << 16), rng.randrange(1 << 16), n) for n, name in enumerate(names)]


@contextmanager
def reproducible(seed: int) -> Iterator[None]:
    """Make ids depend on the seed, and leave out waits and parallel statements."""
    source = random.Random(seed)
    with (
        patch("os.urandom", lambda n: source.randbytes(n)),
        patch.object(execution, "_order", iter(range(1 << 24))),
        patch.object(heartbeat, "GATHER_S", 0.0),
        patch.object(dispatch_service, "DECLINED_S", 0.0),
        patch.object(herd, "PARALLEL_CHUNKS", 1),
    ):
        yield


class World:
    """One run. `database` and `clock` are shared by the runs of a test; `begin` empties the database."""

    def __init__(self, database: Database, clock: VirtualClock, seed: int) -> None:
        self._database, self._clock, self._seed = database, clock, seed
        self.rng = random.Random(seed)
        self._bus = SimulatedBus()
        self._bus.rng = self.rng
        self._activity = Activity()
        self._messages: list[Message] = []
        self._evidence = Evidence()
        self._acknowledged: dict[str, UUID] = {}
        self._names = 0
        self._paused_until: dict[str, float] = {}
        self._schedulers: list[SchedulerProcess] = []
        self._apis: list[ApiProcess] = []
        self._workers: list[ModelWorker] = []
        self._home: dict[str, ApiProcess] = {}  # the api process that has a stream
        self._jobs: list[UUID] = []
        self.trace: list[str] = []
        self._steps = {name: getattr(self, f"_{name}") for name in WEIGHTS if name != "deliver"}
        self._steps["deliver"] = self._deliver_step

    @property
    def now(self) -> float:
        return (self._clock.now - START).total_seconds()

    # Beginning and end -----------------------------------------------------------------------------------

    async def begin(self) -> None:
        await self._clock.set(START)
        self._database.bus = self._bus
        async with self._database.connection() as connection:
            await connection.execute(RESET)
        for every, name, more in (
            (5, "job", {"overlap": "allow"}),
            (7, "skip", {"overlap": "skip"}),
            (5, "chain", {"overlap": "queue_all"}),
            (10, "once", {"overlap": "allow", "delivery": "at_most_once", "retries": RetryPolicy(max=0)}),
            (5, "key", {"overlap": "allow", "concurrency": Concurrency(key="k", limit=1)}),
        ):
            await self._add(f"{name}-{every}-{len(self._jobs)}", every, **more)
        self._jobs.append(await self._add("manual", None))
        for _ in range(SCHEDULERS):
            self._add_scheduler()
        for _ in range(APIS):
            self._add_api()
        for n in range(WORKERS):
            name = f"worker-{n}"
            self._workers.append(ModelWorker(name, self._sender(name), self._evidence))
        for process in self._processes:
            await process.finish()

    async def _add(self, name: str, every: int | None, **more: Any) -> UUID:
        schedule = None if every is None else ScheduleSpec(every=every, aligned=True)
        more.setdefault("retries", RetryPolicy(max=2, base="4s", jitter="none"))
        spec = JobSpec(name=name, task=NoopTask(), schedule=schedule, misfire=Misfire(policy="all"), **more)
        return await jobs.create(self._database, spec, tenant=TENANT, by="test")

    def _add_scheduler(self) -> None:
        self._names += 1
        name = f"scheduler-{self._names}"
        self._schedulers.append(
            SchedulerProcess(name, self._database, self._activity, self._bus, self._clock, self.rng)
        )

    def _add_api(self) -> None:
        self._names += 1
        name = f"api-{self._names}"
        self._apis.append(
            ApiProcess(name, self._database, self._activity, self._bus, self._clock, self.rng, self._sent_by(name))
        )

    @property
    def _processes(self) -> list[Process]:
        return [*self._schedulers, *self._apis]

    async def end(self) -> None:
        for process in self._processes:
            await process.kill()
        self._database.bus = None

    # Network ---------------------------------------------------------------------------------------------

    def _sender(self, worker: str) -> Any:
        def send(kind: str, body: dict[str, Any]) -> None:
            self._messages.append(Message("api", worker, kind, body, None, self.now))

        return send

    def _sent_by(self, api: str) -> Any:
        def send(worker: str, kind: str, body: dict[str, Any], stream: str | None) -> None:
            self._messages.append(Message(worker, api, kind, body, stream, self.now))

        return send

    def _select(self, n: int) -> Message | None:
        """A message; those of a stream arrive in their order."""
        if not self._messages:
            return None
        chosen = self._messages[n % len(self._messages)]
        return next(m for m in self._messages if m is chosen or (chosen.stream and m.stream == chosen.stream))

    def _deliver(self, message: Message, api: int) -> None:
        if message.receiver == "api":
            self._handle(message, api)
            return
        for worker in self._workers:  # answers to the client are not modelled
            if worker.name == message.receiver:
                worker.receive(message.kind, message.body, self.now)

    def _handle(self, message: Message, api: int) -> None:
        process = self._apis[api % len(self._apis)]
        stream = message.body.get("stream")
        if message.kind == "open":
            self._home[message.body["stream"]] = process
        elif stream is not None:
            process = self._home.get(stream, process)
        if not process.alive:
            if message.kind == "capacity":
                self._sent_by(process.name)(message.sender, "closed", {"stream": stream}, None)
            return
        process.handle(message.sender, message.kind, message.body)

    def _break_stream(self, stream: str) -> None:
        """The connection of a stream ends: what is on its way is lost, and both ends notice."""
        self._messages = [m for m in self._messages if m.stream != stream]
        worker = stream.partition("/")[0]
        self._messages.append(Message("api", worker, "gone", {"stream": stream}, None, self.now))
        self._deliver(Message(worker, "", "closed", {"stream": stream}, None, self.now), 0)

    # Steps -----------------------------------------------------------------------------------------------

    async def step(self, step: Step) -> None:
        """Do one step, then check everything."""
        self.rng.seed(f"{self._seed}/{step.n}")
        before = self._activity.transactions
        await self._steps[step.what](step.a, step.b)
        await self._activity.settled()
        for api in self._apis:
            self._collect(api)
        self._raise_errors()
        if self._activity.transactions != before:
            await self.check()
        self.trace.append(f"{step} t={self.now:g} transactions={self._activity.transactions}")

    async def check(self, *, in_the_end: bool = False) -> None:
        async with self._database.connection() as connection:
            found = await offences(connection, list(self._acknowledged.values()), in_the_end=in_the_end)
        found += self._evidence.offences
        if found:
            raise Violation("; ".join(found[:4]))

    def _raise_errors(self) -> None:
        for process in self._processes:
            if process.errors:
                raise Violation(f"{process.name}: {process.errors[0]!r}") from process.errors[0]

    def _collect(self, api: ApiProcess) -> None:
        for key, execution_id in api.acknowledged.items():
            if self._acknowledged.setdefault(key, execution_id) != execution_id:
                raise Violation(f"the key {key} stands for two executions")
        api.acknowledged = {}
        for execution_id, attempt, session in api.accepted:
            for start in self._evidence.starts.get(execution_id, ()):
                if start.attempt == attempt and start.session != session:
                    raise Violation(f"I22 a result was accepted from another session: {execution_id} attempt {attempt}")
        api.accepted = []

    def _is_paused(self, name: str) -> bool:
        return self._paused_until.get(name, 0.0) > self.now

    def _choose(self, processes: list[Any], n: int) -> Any:
        process = processes[n % len(processes)]
        return None if self._is_paused(process.name) else process

    async def _complete(self, process: Process | None, n: int) -> None:
        """Two thirds of the operations run to their end at once; the others wait at their first gate."""
        if process is not None:
            await self._activity.settled()
            if n % 3:
                await self._finish(process)

    async def _finish(self, process: Process) -> None:
        while any(not gate.opened.done() for gate in process.gates):
            await self._turn_of(process)

    async def _turn_of(self, process: Process, trouble: Any = "") -> None:
        """One transaction; one of a scheduler that decides leaves alone the shards that are no longer its own."""
        if not isinstance(process, SchedulerProcess) or not process.gates or process.gates[0].operation != "decide":
            await process.turn(trouble)
            return
        before = await self._marks()
        owned = {s: one.epoch for s, one in process.scheduler._owned.items()}
        await process.turn(trouble)
        after = await self._marks()
        moved = [s for s, epoch in owned.items() if before[s][0] != epoch and before[s][1] != after[s][1]]
        if moved:
            raise Violation(f"I17 {process.name} decided shards {moved[:5]} with an old epoch")

    async def _marks(self) -> dict[int, tuple[int, Any]]:
        async with self._database.connection() as connection:
            rows = await connection.fetch("SELECT shard, epoch, watermark FROM shards")
        return {r["shard"]: (r["epoch"], r["watermark"]) for r in rows}

    async def _calm(self, a: int, b: int) -> None:
        """Everything that would happen within about a second without faults."""
        for scheduler in self._schedulers:
            if not self._is_paused(scheduler.name):
                for operation in ("lease", "safety_net", "decide", "save"):
                    scheduler.start(operation)
                    await self._activity.settled()
                    await self._finish(scheduler)
        await self._exchange(a)
        for api in self._apis:
            if not self._is_paused(api.name):
                api.claim()
                await self._activity.settled()
                await self._finish(api)
        await self._exchange(a)

    async def _exchange(self, a: int) -> None:
        for worker in self._workers:
            if not self._is_paused(worker.name):
                self._act_now(worker)
        for _ in range(3):
            messages, self._messages = self._messages, []
            for n, message in enumerate(messages):
                if self._is_paused(message.receiver):
                    self._messages.append(message)
                    continue
                self._deliver(message, a + n)
                await self._activity.settled()
            for api in self._apis:
                if not self._is_paused(api.name):
                    await self._finish(api)

    async def _advance(self, a: int, b: int) -> None:
        await self._pass_time(ADVANCES[a % len(ADVANCES)])

    async def _pass_time(self, seconds: float) -> None:
        await self._clock.set(self._clock.now + timedelta(seconds=seconds))
        for worker in self._workers:
            worker.time_passes(self.now, self.rng)

    async def _lease(self, a: int, b: int) -> None:
        await self._schedule("lease", a, b)

    async def _decide(self, a: int, b: int) -> None:
        await self._schedule("decide", a, b)

    async def _save(self, a: int, b: int) -> None:
        await self._schedule("save", a, b)

    async def _schedule(self, operation: str, a: int, b: int) -> None:
        if (scheduler := self._choose(self._schedulers, a)) is not None:
            scheduler.start(operation)
            await self._complete(scheduler, b)

    async def _claim(self, a: int, b: int) -> None:
        if (api := self._choose(self._apis, a)) is not None:
            api.claim()
            await self._complete(api, b)

    async def _act(self, a: int, b: int) -> None:
        if (worker := self._choose(self._workers, a)) is not None:
            self._act_now(worker)

    def _act_now(self, worker: ModelWorker) -> None:
        oldest = min((m.sent for m in self._messages if m.stream and m.stream == worker.stream), default=self.now)
        if self.now - oldest > GIVE_UP_S and worker.stream is not None:
            self._break_stream(worker.stream)
        worker.act(self.now)

    async def _deliver_step(self, a: int, b: int, *, keep: bool = False) -> None:
        message = self._select(a)
        if message is None or self._is_paused(message.receiver):
            return
        if not keep:
            self._messages.remove(message)
        self._deliver(message, b)
        for api in self._apis:
            if not self._is_paused(api.name):
                await self._complete(api, b)

    async def _turn(self, a: int, b: int) -> None:
        await self._turn_with("", a)

    async def _lose_before(self, a: int, b: int) -> None:
        await self._turn_with("before", a)

    async def _lose_answer(self, a: int, b: int) -> None:
        await self._turn_with("after", a)

    async def _turn_with(self, trouble: Any, a: int) -> None:
        waiting = [p for p in self._processes if p.gates and not self._is_paused(p.name)]
        if waiting:
            await self._turn_of(waiting[a % len(waiting)], trouble)

    async def _drop(self, a: int, b: int) -> None:
        if (message := self._select(a)) is not None:
            if message.stream:
                self._break_stream(message.stream)
            else:
                self._messages.remove(message)

    async def _duplicate(self, a: int, b: int) -> None:
        message = self._select(a)
        if message is not None and not message.stream and message.kind != "open":
            await self._deliver_step(self._messages.index(message), b, keep=True)

    async def _misreport(self, a: int, b: int) -> None:
        """A worker reports an attempt that runs on another one."""
        running = [start for starts in self._evidence.starts.values() for start in starts if start.ended is None]
        if not running:
            return
        start = running[a % len(running)]
        others = [w.session for w in self._workers if w.session is not None and w.session != start.session]
        if others:
            wrong = others[b % len(others)]
            result = AttemptResult(start.execution, start.attempt, wrong, "succeeded" if b % 3 else "failed", 5)
            self._deliver(
                Message("api", "client", "report", {"session": wrong, "results": [result]}, None, self.now), b
            )
            for api in self._apis:
                await self._complete(api, 1)

    async def _regain(self, a: int, b: int) -> None:
        """A scheduler is away until a peer has its shards, and gets some back without hearing of it.

        The answer to its first beat is lost; so the owner is right when it decides, and the epoch that it knows is not.
        """
        scheduler = self._schedulers[a % len(self._schedulers)]
        self._paused_until[scheduler.name] = self.now + 100
        for n in range(5):
            await self._pass_time(4.0)
            await self._calm(b + n, 0)
        await self._finish(scheduler)  # what it had begun before
        scheduler.start("lease")
        await self._activity.settled()
        await self._turn_of(scheduler, "after")
        for other in self._schedulers:
            for operation in ("lease", "decide", "lease") if other is not scheduler else ():
                other.start(operation)
                await self._activity.settled()
                await self._finish(other)
        await self._pass_time(5.0)
        del self._paused_until[scheduler.name]
        scheduler.start("decide")
        await self._activity.settled()
        await self._finish(scheduler)

    async def _kill_scheduler(self, a: int, b: int) -> None:
        """Every other one dies after the first transaction of a decision."""
        process = self._schedulers[a % len(self._schedulers)]
        if b % 2 and not self._is_paused(process.name):
            await self._finish(process)
            process.start("decide")
            await self._activity.settled()
            await self._turn_of(process)
        self._schedulers.remove(process)
        self._bus.forget(process.name)
        await process.kill()
        self._add_scheduler()

    async def _kill_api(self, a: int, b: int) -> None:
        process = self._apis.pop(a % len(self._apis))
        self._bus.forget(process.name)
        await process.kill()
        self._add_api()
        await self._finish(self._apis[-1])

    async def _kill_worker(self, a: int, b: int) -> None:
        worker = self._workers[a % len(self._workers)]
        if worker.stream is not None:
            self._break_stream(worker.stream)
        sent = len(self._messages)
        worker.crash(self.now)
        if b % 2:  # the guardian is gone as well, with the machine
            del self._messages[sent:]

    async def _pause(self, a: int, b: int) -> None:
        """Stop a process, as SIGSTOP does."""
        everyone = [*(p.name for p in self._processes), *(w.name for w in self._workers)]
        self._paused_until[everyone[a % len(everyone)]] = self.now + ADVANCES[b % len(ADVANCES)]

    async def _submit(self, a: int, b: int) -> None:
        body = {"job": self._jobs[0], "key": f"key-{a % 40}"}
        self._messages.append(Message("api", "client", "submit", body, None, self.now))

    async def _add_job(self, a: int, b: int) -> None:
        if self._names < 100 and a % MOST_JOBS:
            every = (5, 7, 20)[b % 3]
            self._names += 100
            await self._add(f"job-{every}-new", every, overlap="allow")

    async def heal(self) -> None:
        """No more faults: everything that was due is decided, and every execution can end."""
        self._paused_until.clear()
        self._bus.loss = 0.0
        for round_number in range(HEAL_ROUNDS):
            self.rng.seed(f"{self._seed}/heal/{round_number}")
            await self._pass_time(ROUND_S)
            await self._calm(round_number, 0)
            for api in self._apis:
                self._collect(api)
            self._raise_errors()
        await self.check(in_the_end=True)
