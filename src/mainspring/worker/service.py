"""The worker service: one session after another, each polling for attempts until it ends or drains."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import structlog

from mainspring import __version__, wire
from mainspring.clock import Clock, SystemClock
from mainspring.domain.errors import Invalid
from mainspring.domain.placement.isolation import CONFINED_KINDS, MinIsolation, can_reach
from mainspring.domain.plugin import OWN_KINDS
from mainspring.ports import ResultStream
from mainspring.service import Loops, Service
from mainspring.telemetry.spans import open_spans
from mainspring.worker.attempt import Attempts
from mainspring.worker.capacity import detect
from mainspring.worker.cleanup import GuardianPipe
from mainspring.worker.environment import job_environment
from mainspring.worker.executors import Executor, Host, schemas_of, start_all, stop_all
from mainspring.worker.executors.pods.cluster import ClusterSettings
from mainspring.worker.isolation.orphans import Orphans
from mainspring.worker.isolation.sandbox import SandboxSupport, detect_sandbox_support
from mainspring.worker.poller import Poller
from mainspring.worker.python.loader import ModuleLoader, Reloadable
from mainspring.worker.session import Session
from mainspring.worker.slots import Slots
from mainspring.worker.source import WorkSource
from mainspring.worker.stream import WorkStream
from mainspring.worker.transport.api_client import ApiAddress, ApiClient, ApiUnavailable, Refused, SessionEnded
from mainspring.worker.transport.delivery import ResultDelivery
from mainspring.worker.transport.download import InputDownloads
from mainspring.worker.transport.result_keeper import ResultKeeper
from mainspring.worker.transport.stream_connection import is_direct
from mainspring.worker.usage import UsageTotals

log = structlog.get_logger()

FLUSH_S = 20.0
COLLECT_S = 1.0
RETRY_S = 1.0
FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.2, 10.0


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """The settings of one worker."""

    address: ApiAddress
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
    engine: str | None = None  # socket of a container engine
    pull: bool = True
    cluster: ClusterSettings | None = None  # where pods run
    streams: bool = True  # False: long polls only
    min_isolation: MinIsolation = "none"  # of programs and functions, whatever jobs and queues say
    adopts_orphans: bool = False  # for a process that is a worker and nothing else
    results: ResultStream | None = None  # keeps results while the api is unavailable
    pass_env: Sequence[str] = ()  # variables that jobs inherit besides the default ones
    otlp_endpoint: str | None = None  # where spans are sent; None: none are made


class Worker(Service):
    """One worker process. It has one session at a time and registers a new one when that ends."""

    def __init__(
        self,
        config: WorkerConfig,
        executors: dict[str, Executor],
        *,
        clock: Clock | None = None,
        echo: Callable[[str], None] = log.info,
    ) -> None:
        self._echo = echo
        self._config = config
        self._environment = job_environment(config.pass_env)
        # Only offered with modules to call functions of, an engine to run containers, and a cluster to run pods.
        usable = {
            "python": bool(config.modules),
            "container": config.engine is not None,
            "pod": config.cluster is not None,
        }
        for kind in CONFINED_KINDS:
            usable[kind] = usable.get(kind, True) and can_reach(kind, config.min_isolation)
        self._executors = {kind: e for kind, e in executors.items() if usable.get(kind, True)}
        self._clock = clock or SystemClock()
        self._api = ApiClient(config.address)
        self._spans = open_spans(config.otlp_endpoint, role="worker")
        self._slots = Slots(config.slots, config.resources)
        self._sandbox_support = SandboxSupport()
        self._guardian: GuardianPipe | None = None
        self._inputs: InputDownloads | None = None
        self._loader: ModuleLoader | None = None
        self._session: Session | None = None
        self._delivery: ResultDelivery | None = None
        self._source: WorkSource | None = None
        self._ready = asyncio.Event()
        self._refusal: asyncio.Future[Refused] = asyncio.get_running_loop().create_future()
        self._draining = False
        self._unstated = asyncio.Event()  # the modules have changed since the functions were stated
        self._tasks = Loops("worker")

    @property
    def busy(self) -> int:
        return self._slots.busy

    async def start(self) -> None:
        self._guardian = GuardianPipe()
        self._inputs = InputDownloads(self._api, self._guardian)
        orphans = self._adopt_orphans(self._guardian) if self._config.adopts_orphans else None
        self._sandbox_support = await asyncio.to_thread(detect_sandbox_support, engine=self._config.engine)
        if self._config.min_isolation == "bwrap" and self._sandbox_support.bwrap is None:
            raise Invalid("--min-isolation: bubblewrap does not work on this machine; install it, or use `container`")
        if isinstance(self._executors.get("python"), Reloadable):
            self._loader = ModuleLoader(
                self._config.modules,
                self._api,
                watch=self._config.reload,
                on_reload=self._reloaded,
                cleanup=self._guardian,
                environment=self._environment,
                echo=self._echo,
                orphans=orphans,
            )
            await self._loader.start()
        host = Host(
            self._config.slots,
            self._guardian,
            self._config.modules,
            self._config.allow_net,
            engine=self._config.engine,
            pull=self._config.pull,
            sandbox_support=self._sandbox_support,
            orphans=orphans,
            environment=self._environment,
            name=self._config.name,
            cluster=self._config.cluster,
        )
        await start_all(self._executors, host)
        await asyncio.to_thread(self._guardian.wait_hidden)
        self._tasks.forever("session", self._run_session)

    async def ready(self) -> None:
        await self._ready.wait()

    async def not_ready(self) -> str | None:
        """Why this worker can't receive work, or None."""
        if self._draining:
            return "draining"
        if self._session is None or self._source is None:
            return "not registered: no answer of the api yet"
        if self._session.failure is not None:
            return f"heartbeats fail: {self._session.failure}"
        return None if self._source.receives else "the connection to the api is lost"

    async def refused(self) -> Refused:
        """Return once the api refuses this worker for good: a wrong token, or another protocol version."""
        return await asyncio.shield(self._refusal)

    async def drain(self) -> None:
        """Take no new attempts and finish the running ones; preempt those that need more than `drain_s`."""
        self._draining = True
        if self._session is not None:
            self._session.draining = True
        self._slots.freed.set()
        if self._source is not None:
            await self._source.recall()
        if self._slots.busy:
            log.info("worker.draining", running=self._slots.busy, timeout_s=self._config.drain_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._slots.idle.wait(), self._config.drain_s)
        self._slots.end_all("preempted")
        await self._slots.idle.wait()
        if self._delivery is not None and not await self._delivery.flushed(FLUSH_S):
            log.error("results.undelivered", waited_s=FLUSH_S)
        await self._end_session()

    async def stop(self) -> None:
        self._slots.end_all("preempted")
        await self._slots.idle.wait()
        await self._tasks.stop()
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
            await self._inputs.remove()
        await self._api.close()
        if self._spans is not None:
            await asyncio.to_thread(self._spans.close)

    def _adopt_orphans(self, guardian: GuardianPipe) -> Orphans | None:
        try:
            orphans = Orphans(guardian, sole=self._executors.keys() <= OWN_KINDS)
        except OSError as error:  # this kernel does not list the children of a process
            log.warning("orphans.unavailable", error=str(error), effect="processes that leave their attempt stay")
            return None
        orphans.own(guardian.pid)

        async def collect() -> None:
            await asyncio.sleep(COLLECT_S)
            orphans.collect()

        self._tasks.forever("orphans", collect)
        return orphans

    # One session -------------------------------------------------------------------------------------

    async def _run_session(self) -> None:
        """Register, and receive attempts until the session ends."""
        registered = await self._register()
        ended = asyncio.Event()
        session, source = self._start_session(registered, on_end=ended.set)
        stating = self._tasks.spawn(self._state_functions(registered), "functions")
        receiving = source.start()
        waiting = asyncio.create_task(ended.wait())
        log.info("session.started", session=str(session.session_id), slots=self._config.slots)
        try:
            await asyncio.wait({receiving, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if self._draining:
                await asyncio.Event().wait()  # heartbeats continue until `drain` ends the session
            if receiving.done() and (error := receiving.exception()) is not None:
                log.error("session.failed", error=repr(error))
        finally:
            receiving.cancel()
            waiting.cancel()
            stating.cancel()
            session.stop()
        await self._abandon_session(session)

    async def _register(self) -> wire.Registered:
        backoff_s = FIRST_BACKOFF_S
        while True:
            try:
                return await self._api.register(self._registration())
            except ApiUnavailable as error:
                log.warning("session.register_failed", error=str(error), retry_s=backoff_s)
                await asyncio.sleep(random.uniform(backoff_s / 2, backoff_s))
                backoff_s = min(backoff_s * 2, LONGEST_BACKOFF_S)
            except Refused as error:
                self._refusal.set_result(error)
                await asyncio.Event().wait()

    def _reloaded(self) -> None:
        python = self._executors["python"]
        assert isinstance(python, Reloadable)
        python.reload()
        self._unstated.set()

    async def _state_functions(self, registered: wire.Registered) -> None:
        """State the functions of the loaded modules, now and after each reload. An older api does not ask for them."""
        if self._loader is None or "functions" not in registered.takes:
            return
        self._unstated.set()
        while True:
            await self._unstated.wait()
            self._unstated.clear()
            has = self._loader.functions
            stated = wire.StateFunctions(session_id=registered.session_id, functions=has.functions, modules=has.modules)
            try:
                await self._api.state_functions(stated)
            except ApiUnavailable as error:
                log.warning("functions.unstated", error=str(error), retry_s=RETRY_S)
                self._unstated.set()
                await asyncio.sleep(RETRY_S)
            except SessionEnded:
                return  # the heartbeat finds out as well, and ends the session here
            except Refused as error:
                log.error("functions.refused", error=str(error), effect="no Python functions are executed")

    def _registration(self) -> wire.Register:
        return wire.Register(
            name=self._config.name,
            host=socket.gethostname(),
            version=__version__,
            slots=self._config.slots,
            queues=list(self._config.queues),
            kinds=sorted(self._executors),
            labels=self._sandbox_support.labels() | self._config.labels,
            resources=self._config.resources,
            shared=self._config.shared,
            schemas=schemas_of(self._executors) or msgspec.UNSET,
            takes=["preempt", "session_key", "disclaim", *(["functions"] if self._loader is not None else [])],
        )

    def _start_session(self, registered: wire.Registered, *, on_end: Callable[[], None]) -> tuple[Session, WorkSource]:
        assert self._guardian is not None and self._inputs is not None
        address = replace(self._config.address, session_key=registered.key)
        usage = UsageTotals() if "usage" in registered.takes else None
        session = self._session = Session(
            address, registered, guardian=self._guardian, slots=self._slots, on_end=on_end, usage=usage
        )
        session.draining = self._draining
        delivery = self._delivery = ResultDelivery(
            self._api,
            session.session_id,
            delivered=self._slots.reported,
            features=registered.takes,
            keeper=self._keeper(registered),
        )
        attempts = Attempts(
            session.session_id,
            executors=self._executors,
            slots=self._slots,
            api=self._api,
            inputs=self._inputs,
            delivery=delivery,
            cleanup=self._guardian,
            features=registered.takes,
            tasks=self._tasks,
            clock=self._clock,
            min_isolation=self._config.min_isolation,
            spans=self._spans,
            usage=usage,
        )
        stream = WorkStream(
            address,
            session.session_id,
            self._slots,
            attempts,
            results_wait=delivery.is_sending,
            is_draining=lambda: session.draining,
        )
        poller = Poller(self._api, session, self._slots, attempts, tasks=self._tasks)
        streams = self._config.streams and "stream" in registered.takes and is_direct(self._config.address)
        source = self._source = WorkSource(self._api, stream, poller, streams=streams, on_open=self._ready.set)
        self._slots.on_freed, self._slots.on_resources_freed = stream.slot_freed, source.state_capacity
        self._slots.on_disclaim = delivery.disclaim
        delivery.send, session.renew_by_stream = source.results, source.renew
        session.start()
        delivery.start()
        return session, source

    def _keeper(self, registered: wire.Registered) -> ResultKeeper | None:
        """Keeps results in the stream, if there is one and the session can sign them."""
        if self._config.results is None or not registered.key:
            return None
        return ResultKeeper(self._config.results, registered.session_id, registered.key)

    async def _abandon_session(self, session: Session) -> None:
        """End its attempts and report them lost, so that no rescue waits for the lease to expire."""
        self._slots.end_all("lost")
        await self._slots.idle.wait()
        assert self._delivery is not None
        await self._delivery.stop()
        self._slots.clear_unreported()
        with contextlib.suppress(ApiUnavailable, SessionEnded, Refused):
            await self._api.end_session(session.session_id, lost=True)

    async def _end_session(self) -> None:
        if self._session is None:
            return
        self._session.stop()
        try:
            await self._api.end_session(self._session.session_id)
        except (ApiUnavailable, SessionEnded, Refused) as error:
            log.warning("session.end_failed", error=str(error), effect="its lease expires")
