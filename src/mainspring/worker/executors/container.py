"""Executes containers: without network unless asked for, within limits, and removed afterwards."""

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
from mainspring.worker.attempt_folder import AttemptFolder, attempt_folder
from mainspring.worker.executors import Done, Host, Work, missing_parameter, refuse_splicing
from mainspring.worker.executors.container_engine import Engine, EngineRefused, EngineUnavailable
from mainspring.worker.guardian import SESSION_LABEL
from mainspring.worker.isolation.folders import FolderPool
from mainspring.worker.isolation.owner import owner_died, owner_mark

log = structlog.get_logger()

GRACE_S = 10.0
"""Between SIGTERM and SIGKILL."""
CLOSE_S = 5.0
"""How long to read on after the container has ended."""
ENGINE_RESTART_S = 15.0
"""How long an engine may be away: containers outlive its restart."""
ENGINE_CHECK_S = 0.25
REMOVE_RETRY_S = 5.0
MOUNT = "/mainspring"
"""Where a container finds its attempt's folder."""
EXECUTION_LABEL, OWNER_LABEL = "io.mainspring.execution", "io.mainspring.owner"
MAX_OPEN_FILES, MAX_PROCESSES = 4096, 4096
ENGINE_FAILED = 125
"""The exit code of `docker run` when the engine fails."""


class ContainerExecutor:
    """The `container` kind. A worker offers it if it was started with an engine."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._folders: FolderPool | None = None
        self._may_pull = True
        self._to_remove: set[str] = set()  # containers that could not be removed when their attempt ended
        self._loops = Loops("containers")

    async def start(self, host: Host) -> None:
        if host.engine is None:
            return
        self._engine = Engine(host.engine)
        self._may_pull = host.pull
        try:
            await self._engine.ping()
            await self._remove_orphans()
        except (EngineUnavailable, EngineRefused) as error:
            raise Invalid(f"--engine: {error}; start the engine first, or leave the option out") from None
        host.cleanup.add_engine(host.engine)
        self._folders = FolderPool()
        host.cleanup.add_folder(str(self._folders.root))
        self._loops.forever("remove", self._retry_removals)

    async def stop(self) -> None:
        await self._loops.stop()
        if self._folders is not None:
            self._folders.remove()

    async def execute(self, work: Work) -> Done:
        assert self._folders is not None
        async with attempt_folder(work, self._folders, reusable=False) as folder:
            folder.open_to_all()
            return await self._execute(work, folder)

    async def _execute(self, work: Work, folder: AttemptFolder) -> Done:
        assert self._engine is not None
        name = f"mainspring-{work.assignment.execution_id}-{work.assignment.attempt}"
        running = asyncio.create_task(self._run(name, work, folder, self._engine))
        stopped = asyncio.create_task(work.stop.wait())
        try:
            await asyncio.wait(
                {running, stopped}, timeout=work.definition.timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if running.done():
                return running.result()
            outcome: Outcome = work.stop_outcome or "timed_out"
            await self._end(name, running, self._engine)
            code = running.result().exit_code if running.done() and not running.cancelled() else None
            return work.stopped(outcome, code)
        finally:
            stopped.cancel()
            running.cancel()
            await asyncio.wait({running})
            folder.quiescent = await self._remove(name) and not running.cancelled()
            if running.cancelled():  # the engine may still be creating it
                self._to_remove.add(name)

    async def _run(self, name: str, work: Work, folder: AttemptFolder, engine: Engine) -> Done:
        task = work.definition.task
        assert isinstance(task, ContainerTask)
        if (refused := refuse_splicing(task)) is not None:
            return refused
        try:
            settings = _settings(task, work, folder)
        except KeyError as error:
            return missing_parameter(error)
        try:
            if work.assignment.attempt > 1:  # an earlier container that the engine failed to remove must not run on
                for old in await engine.labelled(f"{EXECUTION_LABEL}={work.assignment.execution_id}"):
                    await engine.remove(old["Id"])
            if (refused := await self._ensure_image(task, engine)) is not None:
                return refused
            await engine.create(name, settings)
            return await self._wait_for_end(name, work, engine)
        except EngineRefused as error:
            return Done("failed", ENGINE_FAILED, f"the container engine refused: {error}")
        except EngineUnavailable as error:
            return Done("failed", ENGINE_FAILED, str(error))

    async def _ensure_image(self, task: ContainerTask, engine: Engine) -> Done | None:
        """Pull the image if needed; return the failure if it can't be used."""
        present = await engine.has_image(task.image)
        if present and task.pull != "always":
            return None
        if task.pull == "never" or not self._may_pull:
            if present:
                return None
            reason = "the task says pull: never" if task.pull == "never" else "this worker pulls none (--no-pull)"
            error = f"the image {task.image} is not on this worker, and {reason}"
            return Done("failed", ENGINE_FAILED, error, retry=False)
        try:
            await engine.pull(task.image)
        except EngineRefused as error:
            return Done("failed", ENGINE_FAILED, f"cannot pull the image {task.image}: {error}")
        return None

    async def _wait_for_end(self, name: str, work: Work, engine: Engine) -> Done:
        """Start the container and wait for its end. The engine may restart meanwhile: containers outlive it."""
        start_requested = restarted = False
        while True:
            try:
                async with engine.attached(name) as frames:
                    reading = asyncio.create_task(_read(frames, work))
                    try:
                        if not start_requested:
                            start_requested = True
                            await engine.start(name)
                        code = await engine.wait(name)
                        await asyncio.wait({reading}, timeout=CLOSE_S)
                    finally:
                        reading.cancel()
                return _done(code, await engine.state(name), work)
            except (EngineUnavailable, EngineRefused) as error:
                # After a restart the engine refuses to attach to a container that has ended meanwhile.
                if not start_requested or (isinstance(error, EngineRefused) and not restarted):
                    raise
                state = await _wait_for_engine(name, engine, str(error))
                restarted = True
                work.output.write("system", b"\n[the container engine restarted; output in between is lost]\n")
                if not state.get("Running"):
                    if state.get("Status") in ("created", "configured", "initialized"):
                        raise
                    return _done(int(state.get("ExitCode", -1)), state, work)

    async def _end(self, name: str, running: asyncio.Task[Done], engine: Engine) -> None:
        """Send SIGTERM, and SIGKILL after the grace period. A container that was not started is left alone."""
        try:
            if not (await engine.state(name)).get("Running"):
                return
            await engine.signal(name, "SIGTERM")
            await asyncio.wait({running}, timeout=GRACE_S)
            if not running.done():
                await engine.signal(name, "SIGKILL")
                await asyncio.wait({running}, timeout=CLOSE_S)
        except (EngineUnavailable, EngineRefused) as error:
            log.warning("container.signal_failed", container=name, error=str(error))

    async def _remove(self, name: str) -> bool:
        """Remove a container now or, if that fails, later; return whether it is gone."""
        assert self._engine is not None
        try:
            await self._engine.remove(name)
            return True
        except (EngineUnavailable, EngineRefused) as error:
            log.warning("container.remove_failed", container=name, error=str(error), retry_s=REMOVE_RETRY_S)
            self._to_remove.add(name)
            return False

    async def _retry_removals(self) -> None:
        await asyncio.sleep(REMOVE_RETRY_S)
        for name in list(self._to_remove):
            if await self._remove(name):
                self._to_remove.discard(name)

    async def _remove_orphans(self) -> None:
        """Remove containers of workers that died on this machine together with their guardians."""
        assert self._engine is not None
        for found in await self._engine.labelled(OWNER_LABEL):
            if owner_died(found["Labels"][OWNER_LABEL]):
                log.warning("container.orphan_removed", container=found["Id"][:12])
                await self._engine.remove(found["Id"])


async def _read(frames: Any, work: Work) -> None:
    async for stream, data in frames:
        work.output.write(stream, data)


async def _wait_for_engine(name: str, engine: Engine, problem: str) -> dict[str, Any]:
    """Return the state of a container once its engine answers again."""
    for _ in range(round(ENGINE_RESTART_S / ENGINE_CHECK_S)):
        try:
            return await engine.state(name)
        except EngineUnavailable:
            await asyncio.sleep(ENGINE_CHECK_S)
    raise EngineUnavailable(f"{problem}; it did not return within {ENGINE_RESTART_S:g} s, so the outcome is unknown")


def _settings(task: ContainerTask, work: Work, folder: AttemptFolder) -> dict[str, Any]:
    """Return the container's settings as the Docker API takes them."""
    values = work.values()
    env = {name: render(value, values) for name, value in task.env.items()}
    env |= work.context() | folder.environment(MOUNT)
    settings: dict[str, Any] = {
        "Image": task.image, "Env": [f"{name}={value}" for name, value in env.items()],
        "HostConfig": _host_config(task, work, folder), "AttachStdout": True, "AttachStderr": True,
        "Labels": {
            SESSION_LABEL: str(work.session_id), EXECUTION_LABEL: str(work.assignment.execution_id),
            OWNER_LABEL: owner_mark(),
        },
    }  # fmt: skip
    for key, words in (("Entrypoint", task.command), ("Cmd", task.args)):
        if words:
            settings[key] = [render(word, values) for word in words]
    return settings | {key: value for key, value in (("User", task.user), ("WorkingDir", task.workdir)) if value}


def _host_config(task: ContainerTask, work: Work, folder: AttemptFolder) -> dict[str, Any]:
    config: dict[str, Any] = {
        "Binds": [f"{folder.path}:{MOUNT}:rw,Z"],  # Z: SELinux keeps containers from folders without its label
        "NetworkMode": "bridge" if task.network else "none",
        "PidsLimit": task.pids,
        "ReadonlyRootfs": task.read_only,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "LogConfig": {"Type": "none"},
        # At most the worker's own limits: an engine without the right to raise them could not start the container.
        "Ulimits": [
            _ulimit("nofile", resource.RLIMIT_NOFILE, MAX_OPEN_FILES),
            _ulimit("nproc", resource.RLIMIT_NPROC, MAX_PROCESSES),
        ],
    }
    if task.read_only:
        config["Tmpfs"] = {"/tmp": "size=64m"}
    if memory := _memory_limit(task, work):
        config |= {"Memory": memory, "MemorySwap": memory}
    cpu = parse_amount("cpu", task.cpu) if task.cpu is not None else work.definition.resources.get("cpu", 0)
    if cpu:
        config["NanoCpus"] = cpu * 1_000_000
    return config


def _memory_limit(task: ContainerTask, work: Work) -> int:
    if task.memory is not None:
        return parse_amount("memory", task.memory)
    return work.definition.resources.get("memory", 0)


def _ulimit(name: str, which: int, limit: int) -> dict[str, Any]:
    hard = resource.getrlimit(which)[1]
    value = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    return {"Name": name, "Soft": value, "Hard": value}


def _done(code: int, state: dict[str, Any], work: Work) -> Done:
    task = work.definition.task
    assert isinstance(task, ContainerTask)
    if code == 0:
        return Done("succeeded", 0)
    limit = _memory_limit(task, work)
    if state.get("OOMKilled"):
        return Done("failed", code, f"out of memory: it used more than {show_amount('memory', limit)}")
    if code == 137 and limit:  # Podman does not always set OOMKilled, and nothing else sends SIGKILL
        return Done("failed", code, f"ended by SIGKILL: out of memory, the limit is {show_amount('memory', limit)}")
    if code > 128:
        return Done("failed", code, work.output.explain(f"ended by signal {code - 128}"))
    return Done("failed", code, work.output.explain(f"exit code {code}"))
