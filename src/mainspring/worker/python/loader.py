"""Registers the jobs that the worker's modules declare, and reloads the modules when their files change.

Modules are first loaded in a process of their own, which then exits. Only if that succeeds do runners load them: an
error in a file is reported with its line, and the previously loaded modules stay in use.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from mainspring import runner_protocol as protocol
from mainspring import wire
from mainspring.domain.job import JobSpec
from mainspring.runner_protocol import BadModule
from mainspring.service import Loops
from mainspring.worker.cleanup import CleanupRegistry
from mainspring.worker.isolation.spawn import signal_group
from mainspring.worker.python.runner_process import SECRETS
from mainspring.worker.transport.api_client import ApiClient, ApiUnavailable

WATCH_S = 0.5
RETRY_S = 1.0
MAX_WATCHED_FILES = 5000
LOAD_S = 60.0


@runtime_checkable
class Reloadable(Protocol):
    """An executor that loads modules, and can load them again."""

    def reload(self) -> None: ...


async def read_declared(targets: Sequence[str], cleanup: CleanupRegistry) -> list[tuple[JobSpec, str]]:
    """Return the jobs that modules declare, each with its file and line."""
    env = {name: value for name, value in os.environ.items() if name not in SECRETS}
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
    cleanup.add_process_group(process.pid)
    try:
        written, _ = await asyncio.wait_for(process.communicate(), LOAD_S)
    except TimeoutError:
        raise BadModule(f"{', '.join(targets)}: not loaded after {LOAD_S:g} s") from None
    finally:
        signal_group(process.pid, signal.SIGKILL)
        await process.wait()  # not yet reaped if it was given up
        cleanup.remove_process_group(process.pid)
    messages = protocol.decode_runner_messages(written)
    last = messages[-1] if messages else None
    if not isinstance(last, protocol.Loaded):
        raise BadModule(f"{', '.join(targets)}: loading ended with exit code {process.returncode}")
    if last.error is not None:
        raise BadModule(last.error)
    return [
        (msgspec.json.decode(m.spec, type=JobSpec), m.location) for m in messages if isinstance(m, protocol.DeclaredJob)
    ]


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
        echo: Callable[[str], None],
    ) -> None:
        self._targets = targets
        self._api = api
        self._watch = watch
        self._on_reload = on_reload
        self._cleanup = cleanup
        self._echo = echo
        self._seen: dict[Path, tuple[int, int]] = {}
        self._jobs: list[tuple[JobSpec, str]] = []
        self._unregistered = asyncio.Event()
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
        self._jobs = await read_declared(self._targets, self._cleanup)
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
        await self._unregistered.wait()
        jobs = list(self._jobs)
        try:
            answer = await self._api.declare([spec for spec, _ in jobs])
        except ApiUnavailable:
            await asyncio.sleep(RETRY_S)
            return
        if jobs == self._jobs:
            self._unregistered.clear()
        self._report(answer.jobs, [location for _, location in jobs])

    def _report(self, declared: Sequence[wire.Declared], locations: Sequence[str]) -> None:
        registered = [f"{job.name} ({job.change})" for job in declared if job.change != "refused"]
        if registered:
            self._echo(f"✔ loaded {len(registered)} job{'s' if len(registered) != 1 else ''}: {', '.join(registered)}")
        for job, location in zip(declared, locations, strict=True):
            if job.change == "refused":
                self._echo(f"✖ {location}: the job {job.name!r} was refused: {job.problem}")


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
