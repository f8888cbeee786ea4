"""Registers the jobs that the worker's modules declare, and reloads the modules when their files change.

Modules are first loaded in a process of their own, which then exits. Only if that succeeds do runners load them: an
error in a file is reported with its line, and the previously loaded modules stay in use.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from mainspring import runner_protocol as protocol
from mainspring import wire
from mainspring.domain.job import JobSpec
from mainspring.runner_protocol import BadModule
from mainspring.service import Loops
from mainspring.worker.cleanup import CleanupRegistry
from mainspring.worker.environment import function_environment
from mainspring.worker.isolation.orphans import Orphans
from mainspring.worker.isolation.spawn import signal_group
from mainspring.worker.transport.api_client import ApiClient, ApiUnavailable

WATCH_S = 0.5
RETRY_S = 1.0
RETRY_REFUSED_S = 2.0
"""How often refused jobs are declared again, until they are accepted or their module changes."""
MAX_WATCHED_FILES = 5000
LOAD_S = 60.0


NOTHING = protocol.StatedFunctions([], {})


@dataclass(frozen=True, slots=True)
class LoadedModules:
    """The jobs that modules declare, each with its file and line, and the functions that they have."""

    jobs: list[tuple[JobSpec, str]]
    functions: protocol.StatedFunctions


@runtime_checkable
class Reloadable(Protocol):
    """An executor that loads modules, and can load them again."""

    def reload(self) -> None: ...


async def read_declared(
    targets: Sequence[str],
    cleanup: CleanupRegistry,
    environment: Mapping[str, str],
    orphans: Orphans | None = None,
) -> LoadedModules:
    """Return what modules declare and have."""
    env = function_environment(environment)
    with contextlib.nullcontext() if orphans is None else orphans.starting():
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "mainspring.runner",
            "--declare",
            *targets,
            # Bytecode files record modification times in seconds: a second edit within one would not be seen.
            env=env | {"PYTHONDONTWRITEBYTECODE": "1"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        if orphans is not None:
            orphans.own(process.pid)
    cleanup.add_process_group(process.pid)
    try:
        written, _ = await asyncio.wait_for(process.communicate(), LOAD_S)
    except TimeoutError:
        raise BadModule(f"{', '.join(targets)}: not loaded after {LOAD_S:g} s") from None
    finally:
        signal_group(process.pid, signal.SIGKILL)
        await process.wait()  # not yet reaped if it was given up
        cleanup.remove_process_group(process.pid)
        if orphans is not None:
            orphans.disown(process.pid)
    messages = protocol.decode_runner_messages(written)
    last = messages[-1] if messages else None
    if not isinstance(last, protocol.Loaded):
        raise BadModule(f"{', '.join(targets)}: loading ended with exit code {process.returncode}")
    if last.error is not None:
        raise BadModule(last.error)
    jobs = [
        (msgspec.json.decode(m.spec, type=JobSpec), m.location) for m in messages if isinstance(m, protocol.DeclaredJob)
    ]
    stated = next((m for m in messages if isinstance(m, protocol.StatedFunctions)), NOTHING)
    return LoadedModules(jobs, stated)


class ModuleLoader:
    """Loads the modules at startup and, with `watch`, whenever one of their files changes."""

    def __init__(
        self,
        targets: Sequence[str],
        api: ApiClient,
        *,
        watch: bool,
        on_reload: Callable[[], None],
        cleanup: CleanupRegistry,
        environment: Mapping[str, str],
        echo: Callable[[str], None],
        orphans: Orphans | None = None,
    ) -> None:
        self._environment = environment
        self._targets = targets
        self._api = api
        self._watch = watch
        self._on_reload = on_reload
        self._cleanup = cleanup
        self._echo = echo
        self._orphans = orphans
        self._seen: dict[Path, tuple[int, int]] = {}
        self._jobs: list[tuple[JobSpec, str]] = []
        self.functions = NOTHING
        self._unregistered = asyncio.Event()
        self._refused: dict[str, str | None] = {}
        self._loops = Loops("loader")

    async def start(self) -> None:
        """Load the modules. Raises `BadModule` if they can't be loaded, unless they are watched for a fix."""
        self._seen = _snapshot(self._targets)
        try:
            await self._load()
        except BadModule as error:
            if not self._watch:
                raise
            self._echo(f"✖ {error.message}")
        self._loops.forever("register", self._register, backoff_s=RETRY_S)
        if self._watch:
            self._loops.forever("watch", self._reload_if_changed)

    async def stop(self) -> None:
        await self._loops.stop()

    async def _load(self) -> None:
        loaded = await read_declared(self._targets, self._cleanup, self._environment, self._orphans)
        self._jobs, self.functions = loaded.jobs, loaded.functions
        if self._jobs:
            self._unregistered.set()

    async def _reload_if_changed(self) -> None:
        await asyncio.sleep(WATCH_S)
        found = _snapshot(self._targets)
        if found == self._seen:
            return
        self._seen = found
        try:
            await self._load()
        except BadModule as error:
            self._echo(f"✖ {error.message} (the previous version stays in use)")
            return
        self._on_reload()

    async def _register(self) -> None:
        retries = await self._nothing_new()
        # Refused jobs are declared again: what refused them, such as a job of the same name, may be gone.
        jobs = [job for job in self._jobs if not retries or job[0].name in self._refused]
        if not jobs:
            self._refused = {}
            return
        try:
            answer = await self._api.declare([spec for spec, _ in jobs])
        except ApiUnavailable:
            await asyncio.sleep(RETRY_S)
            return
        if not retries and jobs == self._jobs:
            self._unregistered.clear()
        self._report(answer.jobs, [location for _, location in jobs], retries=retries)

    async def _nothing_new(self) -> bool:
        """Wait until modules were loaded, or it is time to retry refused jobs; return whether it is the latter."""
        try:
            await asyncio.wait_for(self._unregistered.wait(), RETRY_REFUSED_S if self._refused else None)
        except TimeoutError:
            return True
        return False

    def _report(self, declared: Sequence[wire.Declared], locations: Sequence[str], *, retries: bool) -> None:
        """Print what was registered and refused; of a retry only what has changed."""
        registered = [f"{job.name} ({job.change})" for job in declared if job.change != "refused"]
        if registered:
            self._echo(f"✔ loaded {len(registered)} job{'s' if len(registered) != 1 else ''}: {', '.join(registered)}")
        for job, location in zip(declared, locations, strict=True):
            if job.warning is not None:
                self._echo(f"! {location}: the job {job.name!r}: {job.warning}")
            if job.change == "refused" and not (retries and self._refused.get(job.name) == job.problem):
                self._echo(f"✖ {location}: the job {job.name!r} was refused: {job.problem}")
        self._refused = {job.name: job.problem for job in declared if job.change == "refused"}


def _snapshot(targets: Sequence[str]) -> dict[Path, tuple[int, int]]:
    """Return modification time and size of every file to watch."""
    found: dict[Path, tuple[int, int]] = {}
    for target in targets:
        path = Path(target)
        if not path.exists() and not target.endswith(".py") and "/" not in target:
            path = Path(target.replace(".", "/"))  # a module in the current folder
        files = path.rglob("*.py") if path.is_dir() else [path, path.with_suffix(".py")]
        for file in files:
            try:
                stat = file.stat()
            except OSError:
                continue
            if len(found) < MAX_WATCHED_FILES:
                found[file] = (stat.st_mtime_ns, stat.st_size)
    return found
