"""The worker: polls for work, runs attempts in its slots, and tells how they ended."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import socket
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from uuid import UUID

import msgspec
import structlog

from mainspring import __version__, wire
from mainspring.clock import Clock, SystemClock
from mainspring.domain.execution import Outcome
from mainspring.domain.job import Definition, NoopTask, kind_of
from mainspring.domain.plugin import PluginTask
from mainspring.domain.retry import RetryPolicy
from mainspring.service import Loops, Service
from mainspring.worker import attempt
from mainspring.worker.capacity import detect, left
from mainspring.worker.checkpoint import Checkpoint
from mainspring.worker.executors import Done, Executor, Host, Work, schemas_of, start_all, stop_all
from mainspring.worker.isolation.sandbox import Means, find_means
from mainspring.worker.python.declare import Loader, Renewable
from mainspring.worker.session import GuardianPipe, Session
from mainspring.worker.transport.api_link import Address, ApiAway, Given, Link, Refused, SessionEnded
from mainspring.worker.transport.delivery import Delivery
from mainspring.worker.transport.download import fetch_files
from mainspring.worker.transport.upload import send_files

log = structlog.get_logger()

POLL_S = 30.0
MANY, GATHER_S = 1000, 0.02
"""A worker with so much in hand asks for more by many at once: each poll is a claim."""
BUSY_POLL_S = 2.0
"""While something runs, so that what needs an idle worker, or more than was left, is given one soon after it is."""
SATURATED_S = 0.2
BULK = 100
"""From so many executions in one answer on, throughput is what matters."""
BEGIN_AT_ONCE = 64
FLUSH_S = 20.0
RECALL_S = 1.0
RETRY_S = 0.5
LONGEST_WAIT_S = 10.0
MOST_PROGRESS = 1000

_UNREADABLE = Definition(name="", task=NoopTask(), timeout_s=0, retries=RetryPolicy(), delivery="at_least_once")


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """How this worker presents itself."""

    address: Address
    slots: int = 8
    queues: Sequence[str] = ("short", "long")
    name: str = field(default_factory=socket.gethostname)
    labels: dict[str, str] = field(default_factory=dict)
    drain_s: float = 60.0
    modules: Sequence[str] = ()
    reload: bool = False
    allow_net: Sequence[str] = ()
    resources: dict[str, int] = field(default_factory=detect)
    shared: bool = False
    engine: str | None = None  # the socket of a container engine
    pull: bool = True


class Worker(Service):
    """One worker process. It holds one session at a time; when that ends, it begins a new one."""

    def __init__(
        self,
        config: WorkerConfig,
        executors: dict[str, Executor],
        *,
        clock: Clock | None = None,
        tell: Callable[[str], None] = log.info,
    ) -> None:
        self._tell = tell
        self._config = config
        # Offered only with something to call, and with an engine to run them.
        needs = {"python": bool(config.modules), "container": config.engine is not None}
        self._executors = {kind: e for kind, e in executors.items() if needs.get(kind, True)}
        self._clock = clock or SystemClock()
        self._link = Link(config.address)
        self._guardian: GuardianPipe | None = None
        self._means = Means()
        self._loader: Loader | None = None
        self._session: Session | None = None
        self._delivery: Delivery | None = None
        self._running: dict[UUID, Work] = {}
        self._demanding = 0  # attempts that take more of this worker than a slot
        self._offering = False  # a poll is open that says what was free when it began
        self._undelivered: set[UUID] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._inputs: Path | None = None  # with files that attempts asked for
        self._idle = asyncio.Event()
        self._idle.set()
        self._polling: asyncio.Task[None] | None = None
        self._definitions: dict[str, Definition] = {}
        self._slot_freed = asyncio.Event()
        self._ready = asyncio.Event()
        self._refusal: asyncio.Future[Refused] = asyncio.get_running_loop().create_future()
        self._draining = False
        self._loops = Loops("worker")

    @property
    def busy(self) -> int:
        return len(self._running)

    async def start(self) -> None:
        self._guardian = GuardianPipe()
        self._means = await asyncio.to_thread(find_means)
        python = self._executors.get("python")
        if isinstance(python, Renewable):
            self._loader = Loader(
                self._config.modules,
                self._link,
                reload=self._config.reload,
                renew=python.renew,
                children=self._guardian,
                tell=self._tell,
            )
            await self._loader.start()
        host = Host(
            self._config.slots,
            self._guardian,
            self._config.modules,
            self._config.allow_net,
            engine=self._config.engine,
            pull=self._config.pull,
            means=self._means,
        )
        await start_all(self._executors, host)
        self._loops.forever("session", self._live)

    async def ready(self) -> None:
        await self._ready.wait()

    async def refused(self) -> Refused:
        """Returns only if the api will never take this worker: a wrong token, or another protocol."""
        return await asyncio.shield(self._refusal)

    async def drain(self) -> None:
        """Takes nothing new, finishes what it has, and what is not done in time is given back."""
        self._draining = True
        if self._session is not None:
            self._session.draining = True
        self._slot_freed.set()
        await self._recall_poll()
        if self._running:
            log.info("finishing what runs", executions=len(self._running), seconds=self._config.drain_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), self._config.drain_s)
        self._stop_all("preempted")
        await self._idle.wait()
        if self._delivery is not None and not await self._delivery.flushed(FLUSH_S):
            log.error("some results could not be delivered; the session's lease decides")
        await self._say_goodbye()

    async def stop(self) -> None:
        self._stop_all("preempted")
        await self._idle.wait()
        await self._loops.stop()
        if self._loader is not None:
            await self._loader.stop()
        if self._delivery is not None:
            await self._delivery.stop()
        if self._session is not None:
            self._session.stop()
            await self._session.ended()
        await stop_all(self._executors)
        if self._guardian is not None:
            self._guardian.close()
        if self._inputs is not None:
            await asyncio.to_thread(shutil.rmtree, self._inputs, ignore_errors=True)
        await self._link.close()

    # One life ----------------------------------------------------------------------------------------

    async def _live(self) -> None:
        """From registering to the session's end; the loop around it begins anew."""
        assert self._guardian is not None
        registered = await self._begin()
        ended = asyncio.Event()
        session = self._session = Session(
            self._config.address,
            registered,
            guardian=self._guardian,
            running=self._held,
            on_cancel=self._cancel,
            on_preempt=self._preempt,
            on_end=ended.set,
            on_gone=self._let_go,
            progress=self._progress,
        )
        self._delivery = Delivery(
            self._link, session.session_id, delivered=self._undelivered.difference_update, takes=registered.takes
        )
        session.start()
        self._delivery.start()
        self._ready.set()
        log.info("session begins", session=str(session.session_id), slots=self._config.slots)
        polling = self._polling = asyncio.create_task(self._poll_on(session))
        waiting = asyncio.create_task(ended.wait())
        try:
            await asyncio.wait({polling, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if self._draining:
                await asyncio.Event().wait()  # heartbeats go on until drain() says goodbye
            if polling.done() and (trouble := polling.exception()) is not None:
                log.error("polling failed", error=repr(trouble))
        finally:
            polling.cancel()
            waiting.cancel()
            session.stop()
        await self._give_up(session)

    async def _begin(self) -> wire.Registered:
        wait = 0.2
        while True:
            try:
                return await self._link.register(self._register())
            except ApiAway as error:
                log.warning("waiting for the api", error=str(error))
                await asyncio.sleep(random.uniform(wait / 2, wait))
                wait = min(wait * 2, 10.0)
            except Refused as error:
                self._refusal.set_result(error)
                await asyncio.Event().wait()

    async def _give_up(self, session: Session) -> None:
        """Whatever still runs belongs to others now, and they need not wait for the lease."""
        self._stop_all("lost")
        await self._idle.wait()
        assert self._delivery is not None
        await self._delivery.stop()
        self._undelivered.clear()
        with contextlib.suppress(ApiAway, SessionEnded, Refused):
            await self._link.goodbye(wire.Goodbye(session_id=session.session_id, lost=True))

    def _register(self) -> wire.Register:
        return wire.Register(
            name=self._config.name,
            host=socket.gethostname(),
            version=__version__,
            slots=self._config.slots,
            queues=list(self._config.queues),
            kinds=sorted(self._executors),
            labels=self._means.labels() | self._config.labels,
            resources=self._config.resources,
            shared=self._config.shared,
            schemas=schemas_of(self._executors) or msgspec.UNSET,
            takes=["preempt"],
        )

    async def _say_goodbye(self) -> None:
        if self._session is None:
            return
        self._session.stop()
        try:
            await self._link.goodbye(wire.Goodbye(session_id=self._session.session_id))
        except (ApiAway, SessionEnded, Refused) as error:
            log.warning("could not say goodbye; the lease ends by itself", error=str(error))

    # Polling -----------------------------------------------------------------------------------------

    async def _poll_on(self, session: Session) -> None:
        """Polls, and begins what it brings. After a large answer the next poll goes ahead while this one is begun."""
        wait = 0.1
        ahead: asyncio.Task[Given] | None = None
        try:
            while ahead is not None or not self._draining:
                try:
                    polling, ahead = ahead, None
                    if polling is not None:
                        polled: Given | None = await polling
                    elif free := self._free():
                        if self.busy > MANY and self.busy > 10 * free:
                            await asyncio.sleep(GATHER_S)  # there is enough to do, and more will be free
                        polled = await self._ask(session, _share(max(free, self._free())))
                    else:
                        polled = await self._poll_while_full(session)
                    if polled is not None:
                        begun = self._take(polled, session)
                        if len(begun) >= BULK and not self._draining and (free := self._free()):
                            ahead = asyncio.create_task(self._ask(session, _share(free)))
                        await self._begin_all(begun)
                    wait = 0.1
                except (SessionEnded, Refused) as error:
                    log.warning("the poll was refused", reason=str(error))
                    return
                except Exception as error:
                    # Away, or an error of our own: what runs goes on, and the next poll comes later.
                    away = isinstance(error, ApiAway)
                    log.warning(
                        "the api is away" if away else "polling failed",
                        error=repr(error),
                        wait_s=round(wait, 1),
                        exc_info=not away,
                    )
                    await asyncio.sleep(random.uniform(wait / 2, wait))
                    wait = min(wait * 2, LONGEST_WAIT_S)
        finally:
            if ahead is not None:
                ahead.cancel()

    def _free(self) -> int:
        """Slots; none while an attempt has the worker to itself."""
        if self._demanding and any(work.definition.exclusive for work in self._running.values()):
            return 0
        return self._config.slots - self.busy

    def _left(self) -> dict[str, int] | None:
        if not self._demanding:
            return None
        return left(self._config.resources, (work.definition for work in self._running.values()))

    async def _ask(self, session: Session, free: int) -> Given:
        wait_s = BUSY_POLL_S if self._running else POLL_S
        self._offering = True
        try:
            return await self._link.poll(
                wire.Poll(session_id=session.session_id, free=free, wait_s=wait_s, resources=self._left())
            )
        finally:
            self._offering = False

    async def _renew_poll(self) -> None:
        """Has the api answer the open poll, which says less than there is room for now; the next one says more."""
        with contextlib.suppress(ApiAway, SessionEnded, Refused):
            if self._session is not None:
                poll = wire.Poll(session_id=self._session.session_id, free=0, wait_s=0)
                told = await self._link.poll(poll)
                self._cancel(told.cancels)
                self._preempt(told.preempts)

    async def _recall_poll(self) -> None:
        """Has the api answer the open poll: what it was just given comes with it, and nothing after."""
        if self._session is None or self._polling is None:
            return
        with contextlib.suppress(ApiAway, SessionEnded, Refused):
            await self._link.poll(wire.Poll(session_id=self._session.session_id, free=0, wait_s=0))
        await asyncio.wait({self._polling}, timeout=RECALL_S)
        self._polling.cancel()

    async def _poll_while_full(self, session: Session) -> Given | None:
        """No slot is free: listen for cancellations only, and only until one is."""
        self._slot_freed.clear()
        freed = asyncio.create_task(self._slot_freed.wait())
        try:
            await asyncio.wait({freed}, timeout=SATURATED_S)
            if freed.done():
                return None
            poll = asyncio.create_task(self._link.poll(wire.Poll(session_id=session.session_id, free=0, wait_s=POLL_S)))
            await asyncio.wait({freed, poll}, return_when=asyncio.FIRST_COMPLETED)
            if poll.done():
                return poll.result()
            poll.cancel()  # with free=0 it could not have carried work
            return None
        finally:
            freed.cancel()

    def _take(self, polled: Given, session: Session) -> list[tuple[Work, str | None]]:
        """Everything a poll brought is held from now on; what can't be read comes with the reason."""
        if len(self._definitions) > 10_000:
            self._definitions.clear()
        self._definitions |= polled.definitions
        self._cancel(polled.cancels)
        self._preempt(polled.preempts)
        if polled.executions:
            self._idle.clear()
        taken: list[tuple[Work, str | None]] = []
        assert self._guardian is not None and self._delivery is not None
        for assignment in polled.executions:
            definition = self._definitions.get(assignment.definition)
            work = Work(assignment, definition or _UNREADABLE, session_id=session.session_id, children=self._guardian)
            self._running[assignment.execution_id] = work
            self._demanding += _demands(work)
            self._undelivered.add(assignment.execution_id)
            self._delivery.begin(work)
            work.started = self._clock.monotonic()
            trouble = None
            if definition is None:
                trouble = polled.unreadable.get(assignment.definition, "it did not come along")
            taken.append((work, trouble))
        return taken

    async def _begin_all(self, taken: list[tuple[Work, str | None]]) -> None:
        """A few at a time, so that the poll that went ahead and the first results get out meanwhile."""
        waiting = iter(taken)
        try:
            while begun := list(islice(waiting, BEGIN_AT_ONCE)):
                again = [work for work, trouble in begun if work.assignment.attempt > 1 and trouble is None]
                if again:
                    self._loops.spawn(self._begin_again(again), "begin again")
                for work, trouble in begun:
                    if work.assignment.attempt == 1 or trouble is not None:
                        self._begin_one(work, trouble)
                if len(begun) == BEGIN_AT_ONCE:
                    await asyncio.sleep(0)
        finally:
            for work, trouble in waiting:  # nobody else would ever end what is held
                self._begin_one(work, trouble)

    async def _begin_again(self, works: list[Work]) -> None:
        """Further attempts: they go on where the last ones said, so that has to be known first."""
        try:
            await self._read_checkpoints(works)
        finally:
            for work in works:
                self._begin_one(work, None)

    async def _read_checkpoints(self, works: list[Work]) -> None:
        session, executions = self._session, [work.assignment.execution_id for work in works]
        while session is not None and "checkpoints" in session.takes and any(w.stop_outcome is None for w in works):
            ask = wire.ReadCheckpoints(session_id=works[0].session_id, executions=executions)
            try:
                found = (await self._link.read_checkpoints(ask)).checkpoints
            except ApiAway as error:
                log.warning("further attempts wait for the api", attempts=len(works), error=str(error))
                await asyncio.sleep(RETRY_S)
                continue
            except (SessionEnded, Refused) as error:
                log.error("checkpoints were refused", error=str(error))
                return
            for work in works:
                if work.assignment.execution_id in found:
                    work.checkpoint = Checkpoint(found[work.assignment.execution_id])
            return

    def _begin_one(self, work: Work, trouble: str | None) -> None:
        if trouble is None:
            self._begin_attempt(work)
        else:
            self._finish(work, Done("failed", error=f"this worker ({__version__}) can't read the job: {trouble}"))

    async def _begin_with_files(self, work: Work) -> None:
        """What an attempt asked for is there before it begins."""
        assert self._guardian is not None
        if self._inputs is None:
            self._inputs = Path(tempfile.mkdtemp(prefix="mainspring-"))
            self._guardian.folder(str(self._inputs))
        try:
            if self._session is None or "artifacts_in" not in self._session.takes:
                raise Refused("the api is older than this worker, and has no files for it")
            given = work.assignment
            refused = await fetch_files(self._inputs / f"{given.execution_id}.{given.attempt}", work, self._link)
        except Exception as error:
            refused = attempt.failed_by(error)
        if refused is not None:
            self._finish(work, refused)
        else:
            self._begin_attempt(work)

    def _begin_attempt(self, work: Work) -> None:
        if work.definition.artifacts_in and work.inputs is None:
            self._loops.spawn(self._begin_with_files(work), "fetch files")
            return
        executor = attempt.executor_of(work, self._executors)
        if executor is None:
            self._finish(work, attempt.no_executor(kind_of(work.definition.task), self._executors))
        elif type(work.definition.task) is PluginTask and (refused := attempt.bad_settings(work, executor)) is not None:
            self._finish(work, refused)
        elif (begin := getattr(executor, "begin", None)) is not None:  # Direct: isinstance would cost 4 µs an attempt
            try:
                begin(work, self._finish)
            except Exception as error:
                self._finish(work, attempt.failed_by(error))
        else:
            task = asyncio.create_task(self._execute(work, executor))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _execute(self, work: Work, executor: Executor) -> None:
        self._finish(work, await attempt.execute(work, executor))

    async def _finish_with_files(self, work: Work, done: Done, folder: Path) -> None:
        """Files arrive before the result does: after that nobody takes them."""
        if self._session is not None and "artifacts" in self._session.takes:
            try:
                done = await send_files(folder, work, done, self._link)
            except Exception as error:
                done = attempt.failed_by(error)
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        self._finish(work, done)

    def _finish(self, work: Work, done: Done) -> None:
        if work.artifacts is not None:
            folder, work.artifacts = work.artifacts, None
            self._loops.spawn(self._finish_with_files(work, done, folder), "send files")
            return
        if self._running.pop(work.assignment.execution_id, None) is None:
            return  # an executor that ends an attempt twice
        if work.inputs is not None:
            self._loops.spawn(asyncio.to_thread(shutil.rmtree, work.inputs, ignore_errors=True), "remove files")
        self._slot_freed.set()
        if _demands(work):
            self._demanding -= 1
            if self._offering and not self._draining:
                self._offering = False
                self._loops.spawn(self._renew_poll(), "renew poll")
        if not self._running:
            self._idle.set()
        assert self._delivery is not None
        self._delivery.end(work, attempt.tell(work, done, clock=self._clock), retry=done.retry)

    # Ending ------------------------------------------------------------------------------------------

    def _held(self) -> list[UUID]:
        """What the api should believe is ours: running, or done but not yet delivered. Called by the heartbeat."""
        return list(self._undelivered.copy())

    def _cancel(self, executions: Sequence[UUID]) -> None:
        for execution_id in executions:
            if work := self._running.get(execution_id):
                work.end("cancelled")

    def _preempt(self, attempts: Sequence[wire.Preempt]) -> None:
        """These make room. The attempt counts: the answer may be of before, and a further one have begun here since."""
        for one in attempts:
            work = self._running.get(one.execution_id)
            if work is not None and work.assignment.attempt == one.attempt and work.stop_outcome is None:
                work.end("preempted")

    def _let_go(self, executions: Sequence[UUID], asked: float) -> None:
        """The api says that these are not ours: nobody waits for how they end. What began since it was asked may be."""
        for execution_id in executions:
            if (work := self._running.get(execution_id)) and work.started < asked:
                log.warning("an attempt is not ours any more", execution=str(execution_id))
                work.end("lost")

    def _progress(self) -> list[wire.ProgressReport]:
        """The last word of every attempt that has one. Called by the heartbeat."""
        found = []
        for work in self._running.copy().values():
            if (progress := work.progress) is not None:
                progress.refresh()
                if (report := progress.as_wire(work.assignment)) is not None:
                    found.append(report)
        return found[:MOST_PROGRESS]

    def _stop_all(self, outcome: Outcome) -> None:
        for work in list(self._running.values()):
            work.end(outcome)


def _share(free: int) -> int:
    """How many to ask for: of very many only half, so that the next poll can go ahead while these begin."""
    return free if free < 2 * BULK else free // 2


def _demands(work: Work) -> bool:
    return bool(work.definition.resources) or work.definition.exclusive
