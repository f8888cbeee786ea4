"""Any `mainspring` command as a process of its own, with its output in a file."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.health import Answer, health
from tests.support.processes import free_port, until_async


class Program:
    """A running command. `port` is where it serves its health, if it does."""

    def __init__(
        self, folder: Path, *words: str, env: Mapping[str, str], python: str = sys.executable, port: int = 0
    ) -> None:
        self.port = port
        self.screen = folder / f"{words[0]}-{len(list(folder.glob('*.log')))}.log"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("MAINSPRING_")}
        parent = ("--parent", str(os.getpid())) if words[0] in ("serve", "worker") else ()
        with self.screen.open("wb") as screen:
            self.process = subprocess.Popen(
                [python, "-m", "mainspring.cli.main", *words, *parent],
                cwd=folder,
                stdout=screen,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=inherited | dict(env),
            )

    @property
    def text(self) -> str:
        return self.screen.read_text()

    async def health(self, path: str = "/readyz", *, timeout_s: float = 5.0) -> Answer:
        return await health(self.port, path, timeout_s=timeout_s)

    async def ready(self, *, within_s: float = 30) -> None:
        async def is_ready() -> bool:
            assert self.process.poll() is None, self.text
            return (await self.health()).status == 200

        try:
            await until_async("readiness", is_ready, within_s=within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}: {(await self.health()).body}\n{self.text[-3000:]}") from None

    async def unready(self, check: str, *, within_s: float = 30) -> str:
        """Wait until the process says that it is not ready because of this check; return the reason."""
        reason = ""

        async def is_unready() -> bool:
            nonlocal reason
            answer = await self.health()
            reason = answer.body["checks"].get(check, "ok") if answer.status == 503 else "ok"
            return reason != "ok"

        await until_async(f"not ready because of {check}", is_unready, within_s=within_s)
        return reason

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    async def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return await asyncio.to_thread(self.process.wait, 60)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()


@contextmanager
def program(folder: Path, *words: str, env: Mapping[str, str] | None = None, port: int = 0) -> Iterator[Program]:
    running = Program(folder, *words, env=env or {}, port=port)
    try:
        yield running
    finally:
        running.kill()


def server(
    folder: Path, url: str, *options: str, roles: str = "api,scheduler", python: str = sys.executable
) -> Program:
    """Start a server on a free port."""
    port = free_port()
    words = ("serve", "--roles", roles, "--port", str(port), "--artifact-store", str(folder / "artifacts"), *options)
    return Program(folder, *words, env={"MAINSPRING_DATABASE_URL": url}, port=port, python=python)
