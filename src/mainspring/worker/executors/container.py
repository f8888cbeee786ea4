"""Runs containers: no network unless asked for, limits as given, and nothing left behind."""

from __future__ import annotations

import asyncio
import resource
from typing import Any

import structlog

from mainspring.domain.container import ContainerTask
from mainspring.domain.errors import Invalid
from mainspring.domain.execution import Outcome
from mainspring.domain.placement.resources import parse_amount, show_amount
from mainspring.domain.template import render
from mainspring.service import Loops
from mainspring.worker.executors import Done, Host, Work
from mainspring.worker.executors.container_engine import Engine, EngineAway, EngineRefused
from mainspring.worker.files import Place, place_of
from mainspring.worker.guardian import LABEL
from mainspring.worker.isolation.folders import Folders
from mainspring.worker.isolation.owner import owner_died, owner_mark

log = structlog.get_logger()

GRACE_S = 10.0
DRAIN_S = 5.0
PATIENCE_S = 15.0
"""So long an engine that went away may take to come back: containers outlive its restart."""
LOOK_S = 0.25
SWEEP_S = 5.0
MOUNT = "/mainspring"
"""Where a container finds its attempt's folder."""
EXECUTION, OWNER = "io.mainspring.execution", "io.mainspring.owner"
MOST_FILES, MOST_PROCESSES = 4096, 4096


class ContainerExecutor:
    """The `container` kind. A worker offers it if it was told of an engine."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._folders: Folders | None = None
        self._may_pull = True
        self._doomed: set[str] = set()  # could not be removed when their attempt ended
        self._loops = Loops("containers")

    async def start(self, host: Host) -> None:
        if host.engine is None:
            return
        self._engine = Engine(host.engine)
        self._may_pull = host.pull
        try:
            await self._engine.ping()
            await self._clear_the_dead()
        except (EngineAway, EngineRefused) as error:
            raise Invalid(f"--engine: {error}; start the engine first, or leave the option out") from None
        host.children.engine(host.engine)
        self._folders = Folders()
        host.children.folder(str(self._folders.root))
        self._loops.forever("sweep", self._sweep)

    async def stop(self) -> None:
        await self._loops.stop()
        if self._folders is not None:
            self._folders.remove()

    async def execute(self, work: Work) -> Done:
        assert self._folders is not None
        async with place_of(work, self._folders, again=False) as place:
            place.open_to_all()
            return await self._execute(work, place)

    async def _execute(self, work: Work, place: Place) -> Done:
        assert self._engine is not None
        name = f"mainspring-{work.assignment.execution_id}-{work.assignment.attempt}"
        running = asyncio.create_task(self._run(name, work, place, self._engine))
        stopped = asyncio.create_task(work.stop.wait())
        try:
            await asyncio.wait(
                {running, stopped}, timeout=work.definition.timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if running.done():
                return running.result()
            outcome: Outcome = work.stop_outcome or "timed_out"
            await self._end(name, running, self._engine)
            error = f"timed out after {work.definition.timeout_s:g} s" if outcome == "timed_out" else outcome
            code = running.result().exit_code if running.done() and not running.cancelled() else None
            return Done(outcome, code, error)
        finally:
            stopped.cancel()
            running.cancel()
            await asyncio.wait({running})
            place.settled = await self._remove(name) and not running.cancelled()
            if running.cancelled():  # the engine may have been creating it, and be done only now
                self._doomed.add(name)

    async def _run(self, name: str, work: Work, place: Place, engine: Engine) -> Done:
        task = work.definition.task
        assert isinstance(task, ContainerTask)
        try:
            settings = _settings(task, work, place)
        except KeyError as error:
            return Done("failed", error=f"the parameter {error} was not given", retry=False)
        try:
            if work.assignment.attempt > 1:  # one that an engine in trouble kept must not run beside this one
                for old in await engine.labelled(f"{EXECUTION}={work.assignment.execution_id}"):
                    await engine.remove(old["Id"])
            if (trouble := await self._image(task, engine)) is not None:
                return trouble
            await engine.create(name, settings)
            return await self._see_through(name, work, engine)
        except EngineRefused as error:
            return Done("failed", exit_code=125, error=f"the engine refused: {error}")
        except EngineAway as error:
            return Done("failed", exit_code=125, error=str(error))

    async def _image(self, task: ContainerTask, engine: Engine) -> Done | None:
        """Sees to it that the image is there; what is wrong, if it can't be."""
        there = await engine.has_image(task.image)
        if there and task.pull != "always":
            return None
        if task.pull == "never" or not self._may_pull:
            if there:
                return None
            why = "the task says never to fetch it" if task.pull == "never" else "this worker fetches none (--no-pull)"
            return Done("failed", exit_code=125, error=f"the image {task.image} is not here, and {why}", retry=False)
        try:
            await engine.pull(task.image)
        except EngineRefused as error:
            return Done("failed", exit_code=125, error=f"the image {task.image} can't be fetched: {error}")
        return None

    async def _see_through(self, name: str, work: Work, engine: Engine) -> Done:
        """From its start to its end. An engine that goes away in between may come back: containers outlive it."""
        asked = back = False
        while True:
            try:
                async with engine.attached(name) as frames:
                    reading = asyncio.create_task(_read(frames, work))
                    try:
                        if not asked:
                            asked = True
                            await engine.start(name)
                        code = await engine.wait(name)
                        await asyncio.wait({reading}, timeout=DRAIN_S)
                    finally:
                        reading.cancel()
                return _ended(code, await engine.state(name), work)
            except (EngineAway, EngineRefused) as error:
                # Back again, it refuses to attach to what has ended meanwhile.
                if not asked or (isinstance(error, EngineRefused) and not back):
                    raise
                state = await _await_return(name, engine, str(error))
                back = True
                work.output.write("system", b"\n[the container engine went away and is back; output between is lost]\n")
                if not state.get("Running"):
                    if state.get("Status") in ("created", "configured", "initialized"):
                        raise
                    return _ended(int(state.get("ExitCode", -1)), state, work)

    async def _end(self, name: str, running: asyncio.Task[Done], engine: Engine) -> None:
        """SIGTERM, and SIGKILL if that does not help. What has not been started is not waited for."""
        try:
            if not (await engine.state(name)).get("Running"):
                return
            await engine.signal(name, "SIGTERM")
            await asyncio.wait({running}, timeout=GRACE_S)
            if not running.done():
                await engine.signal(name, "SIGKILL")
                await asyncio.wait({running}, timeout=DRAIN_S)
        except (EngineAway, EngineRefused) as error:
            log.warning("a container could not be told to end; it is removed", error=str(error))

    async def _remove(self, name: str) -> bool:
        """Whether it is gone."""
        assert self._engine is not None
        try:
            await self._engine.remove(name)
            return True
        except (EngineAway, EngineRefused) as error:
            log.warning("a container is removed later", container=name, error=str(error))
            self._doomed.add(name)
            return False

    async def _sweep(self) -> None:
        await asyncio.sleep(SWEEP_S)
        assert self._engine is not None
        for name in list(self._doomed):
            try:
                await self._engine.remove(name)
                self._doomed.discard(name)
            except (EngineAway, EngineRefused) as error:
                log.warning("a container can't be removed yet", container=name, error=str(error))

    async def _clear_the_dead(self) -> None:
        """Containers of workers that died on this machine together with their guardians."""
        assert self._engine is not None
        for found in await self._engine.labelled(OWNER):
            if owner_died(found["Labels"][OWNER]):
                log.warning("removing a container of a dead worker", container=found["Id"][:12])
                await self._engine.remove(found["Id"])


async def _read(frames: Any, work: Work) -> None:
    async for stream, data in frames:
        work.output.write(stream, data)


async def _await_return(name: str, engine: Engine, trouble: str) -> dict[str, Any]:
    """The state of a container once its engine answers again."""
    tries = round(PATIENCE_S / LOOK_S)
    for _ in range(tries):
        try:
            return await engine.state(name)
        except EngineAway:
            await asyncio.sleep(LOOK_S)
    raise EngineAway(f"{trouble}, and did not come back within {PATIENCE_S:g} s; whether it ended is not known")


def _settings(task: ContainerTask, work: Work, place: Place) -> dict[str, Any]:
    values = work.values()
    env = {name: render(value, values) for name, value in task.env.items()} | work.context() | place.environment(MOUNT)
    limits: dict[str, Any] = {
        "Binds": [f"{place.folder}:{MOUNT}:rw,Z"],  # Z: also where SELinux keeps containers from folders of the host
        "NetworkMode": "bridge" if task.network else "none",
        "PidsLimit": task.pids,
        "ReadonlyRootfs": task.read_only,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "LogConfig": {"Type": "none"},
        # Never more than our own: an engine that may not raise limits could not start it.
        "Ulimits": [
            _ulimit("nofile", resource.RLIMIT_NOFILE, MOST_FILES),
            _ulimit("nproc", resource.RLIMIT_NPROC, MOST_PROCESSES),
        ],
    }
    if task.read_only:
        limits["Tmpfs"] = {"/tmp": "size=64m"}
    if memory := memory_limit(task, work):
        limits |= {"Memory": memory, "MemorySwap": memory}
    cpu = parse_amount("cpu", task.cpu) if task.cpu is not None else work.definition.resources.get("cpu", 0)
    if cpu:
        limits["NanoCpus"] = cpu * 1_000_000
    settings: dict[str, Any] = {
        "Image": task.image, "Env": [f"{name}={value}" for name, value in env.items()], "HostConfig": limits,
        "AttachStdout": True, "AttachStderr": True,
        "Labels": {
            LABEL: str(work.session_id), EXECUTION: str(work.assignment.execution_id), OWNER: owner_mark(),
        },
    }  # fmt: skip
    for key, words in (("Entrypoint", task.command), ("Cmd", task.args)):
        if words:
            settings[key] = [render(word, values) for word in words]
    return settings | {key: value for key, value in (("User", task.user), ("WorkingDir", task.workdir)) if value}


def memory_limit(task: ContainerTask, work: Work) -> int:
    return (
        parse_amount("memory", task.memory) if task.memory is not None else work.definition.resources.get("memory", 0)
    )


def _ulimit(name: str, which: int, most: int) -> dict[str, Any]:
    hard = resource.getrlimit(which)[1]
    value = most if hard == resource.RLIM_INFINITY else min(most, hard)
    return {"Name": name, "Soft": value, "Hard": value}


def _ended(code: int, state: dict[str, Any], work: Work) -> Done:
    task = work.definition.task
    assert isinstance(task, ContainerTask)
    if code == 0:
        return Done("succeeded", 0)
    most = memory_limit(task, work)
    if state.get("OOMKilled"):
        return Done("failed", code, f"out of memory: it used more than {show_amount('memory', most)}")
    if code == 137 and most:  # Podman does not always notice; nobody else sends SIGKILL
        return Done("failed", code, f"ended by SIGKILL: out of memory, it may use {show_amount('memory', most)}")
    if code > 128:
        return Done("failed", code, f"ended by signal {code - 128}")
    return Done("failed", code, f"exit code {code}")
