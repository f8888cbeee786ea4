"""Registers the jobs that the worker's modules declare, and loads the modules anew when their files change.

Modules are first loaded in a process that is thrown away. Only if that went well do runners load them: a file with
a mistake in it is told with its line, and what was loaded before stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from mainspring import calls, wire
from mainspring.domain.errors import Invalid
from mainspring.domain.job import JobSpec
from mainspring.service import Loops
from mainspring.worker.executors import Children
from mainspring.worker.python.runner import SECRETS
from mainspring.worker.transport.api_link import ApiAway, Link

WATCH_S = 0.5
RETRY_S = 1.0
MOST_FILES = 5000
LOAD_S = 60.0


@runtime_checkable
class Renewable(Protocol):
    def renew(self) -> None: ...


class BadModule(Invalid):
    """A module can't be loaded, or declares something that can't be; the message begins with file and line."""

    code = "bad_module"


async def read_declared(targets: Sequence[str], children: Children) -> list[tuple[JobSpec, str]]:
    """The jobs that modules declare, each with its file and line."""
    env = {name: value for name, value in os.environ.items() if name not in SECRETS}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "mainspring.runner",
        "--declare",
        *targets,
        # Compiled files are only as fine as a second: an edit within one would not be seen.
        env=env | {"PYTHONDONTWRITEBYTECODE": "1"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    children.born(process.pid)
    try:
        said, _ = await asyncio.wait_for(process.communicate(), LOAD_S)
    except TimeoutError:
        raise BadModule(f"{', '.join(targets)}: not loaded after {LOAD_S:g} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        children.gone(process.pid)
    words = [calls.read_word(line) for line in said.splitlines()]
    last = words[-1] if words else None
    if not isinstance(last, calls.Hello):
        raise BadModule(f"{', '.join(targets)}: loading ended with exit code {process.returncode}")
    if last.error is not None:
        raise BadModule(last.error)
    return [(msgspec.json.decode(w.spec, type=JobSpec), w.place) for w in words if isinstance(w, calls.Declares)]


class Loader:
    """Loads at the start, and with `reload` whenever a file has changed."""

    def __init__(
        self,
        targets: Sequence[str],
        link: Link,
        *,
        reload: bool,
        renew: Callable[[], None],
        children: Children,
        tell: Callable[[str], None],
    ) -> None:
        self._targets = targets
        self._link = link
        self._reload = reload
        self._renew = renew
        self._children = children
        self._tell = tell
        self._seen: dict[Path, tuple[int, int]] = {}
        self._jobs: list[tuple[JobSpec, str]] = []
        self._unsent = asyncio.Event()
        self._loops = Loops("loader")

    async def start(self) -> None:
        """Raises `BadModule` if the modules can't be loaded, unless they are watched and may yet be mended."""
        self._seen = _snapshot(self._targets)
        try:
            await self._load()
        except BadModule as error:
            if not self._reload:
                raise
            self._tell(f"✖ {error.message}")
        self._loops.forever("register", self._register, backoff_s=RETRY_S)
        if self._reload:
            self._loops.forever("watch", self._watch)

    async def stop(self) -> None:
        await self._loops.stop()

    async def _load(self) -> None:
        self._jobs = await read_declared(self._targets, self._children)
        if self._jobs:
            self._unsent.set()

    async def _watch(self) -> None:
        await asyncio.sleep(WATCH_S)
        found = _snapshot(self._targets)
        if found == self._seen:
            return
        self._seen = found
        try:
            await self._load()
        except BadModule as error:
            self._tell(f"✖ {error.message} (what was loaded before stays)")
            return
        self._renew()

    async def _register(self) -> None:
        await self._unsent.wait()
        jobs = list(self._jobs)
        try:
            answer = await self._link.declare([spec for spec, _ in jobs])
        except ApiAway:
            await asyncio.sleep(RETRY_S)
            return
        if jobs == self._jobs:
            self._unsent.clear()
        self._report(answer.jobs, [place for _, place in jobs])

    def _report(self, declared: Sequence[wire.Declared], places: Sequence[str]) -> None:
        fine = [f"{job.name} ({job.change})" for job in declared if job.change != "refused"]
        if fine:
            self._tell(f"✔ loaded {len(fine)} job{'s' if len(fine) != 1 else ''}: {', '.join(fine)}")
        for job, place in zip(declared, places, strict=True):
            if job.change == "refused":
                self._tell(f"✖ {place}: the job {job.name!r} was refused: {job.problem}")


def _snapshot(targets: Sequence[str]) -> dict[Path, tuple[int, int]]:
    """The files that matter, as they are now."""
    found: dict[Path, tuple[int, int]] = {}
    for target in targets:
        path = Path(target)
        if not path.exists() and not target.endswith(".py") and "/" not in target:
            path = Path(target.replace(".", "/"))  # a module in this folder
        files = path.rglob("*.py") if path.is_dir() else [path, path.with_suffix(".py")]
        for file in files:
            try:
                stat = file.stat()
            except OSError:
                continue
            if len(found) < MOST_FILES:
                found[file] = (stat.st_mtime_ns, stat.st_size)
    return found
