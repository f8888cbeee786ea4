"""Three schedulers, four workers and two api processes that a soak test harms at random and restarts."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import httpx2

from tests.support.processes import free_port, until_async
from tests.support.tcp_proxy import PortProxy, Proxy, later

SHARD_LEASE_S = 5.0
SESSION_LEASE_S = 8.0
FAULTS = ("kill", "stop", "cut", "swallow", "lose_commits", "restart")


@dataclass
class Part:
    """A process with the proxy that it reaches its database or its api through."""

    name: str
    arguments: list[str]
    environment: dict[str, str]
    door: Proxy
    folder: Path
    longest_s: float
    process: subprocess.Popen[bytes] | None = None
    harmed: bool = False
    restarts: int = 0  # of a process that ended without being asked to

    def start(self) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MAINSPRING_")}
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mainspring.cli.main", *self.arguments],
                env=environment | self.environment,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def signal(self, number: int) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)

    async def end(self, number: int) -> None:
        """Send a signal and wait for the end. A process that does not heed SIGTERM is an error."""
        assert self.process is not None
        self.signal(number)
        await asyncio.to_thread(self.process.wait, 60)

    async def harm(self, fault: str, random: Random) -> None:
        """Cause a fault for a random time, and heal it."""
        self.harmed = True
        try:
            await self._harm(fault, random.uniform(0.2, self.longest_s), random.randint(1, 3))
        finally:
            self.harmed = False

    async def _harm(self, fault: str, wait_s: float, commits: int) -> None:
        match fault:
            case "kill" | "restart":
                await self.end(signal.SIGKILL if fault == "kill" else signal.SIGTERM)
                await later(min(wait_s, 3.0))
                self.start()
            case "stop":
                self.signal(signal.SIGSTOP)
                await later(wait_s)
                self.signal(signal.SIGCONT)
            case "lose_commits":
                self.door.lose_commits = commits
                await later(wait_s)
                self.door.lose_commits = 0
            case _:
                getattr(self.door, fault)()
                await later(wait_s)
                self.door.heal()

    def supervise(self) -> None:
        """Start it again if it ended by itself: a server without its database at start-up gives up."""
        if not self.harmed and self.process is not None and self.process.poll() is not None:
            self.restarts += 1
            self.start()

    def abandon(self) -> None:
        if self.process is not None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGKILL)
            self.process.wait()


class Topology:
    """Parts by role. The workers are spread over the api processes."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.parts: dict[str, list[Part]] = {"scheduler": [], "api": [], "worker": []}
        self.urls: list[str] = []

    async def open(self, stack: contextlib.AsyncExitStack, worker_token: str) -> None:
        for n in range(3):
            await self._server(stack, "scheduler", n, 0)
        for n in range(2):
            port = free_port()
            await self._server(stack, "api", n, port)
            self.urls.append(f"http://127.0.0.1:{port}")
        async with httpx2.AsyncClient(trust_env=False, timeout=5) as http:
            for url in self.urls:
                await until_async(f"{url} is ready", lambda url=url: _ready(http, url), within_s=120)  # type: ignore[misc]
        for n in range(4):
            await self._worker(stack, n, worker_token)

    async def _server(self, stack: contextlib.AsyncExitStack, role: str, n: int, port: int) -> None:
        door = await _opened(stack, Proxy(self.url, Path(stack.enter_context(tempfile.TemporaryDirectory("", "ms-")))))
        leases = ["--shard-lease", str(SHARD_LEASE_S), "--session-lease", str(SESSION_LEASE_S)]
        arguments = ["serve", "--roles", role, "--port", str(port), "--parent", str(os.getpid()), *leases]
        environment = {"MAINSPRING_DATABASE_URL": door.url, "MAINSPRING_RATE_LIMIT": "0"}
        longest_s = 3 * SHARD_LEASE_S if role == "scheduler" else SESSION_LEASE_S / 2
        self._add(stack, role, Part(f"{role}-{n}", arguments, environment, door, self.folder, longest_s))

    async def _worker(self, stack: contextlib.AsyncExitStack, n: int, token: str) -> None:
        port = free_port()
        door = await _opened(stack, PortProxy(port, int(self.urls[n % len(self.urls)].rpartition(":")[2])))
        arguments = ["worker", "--name", f"worker-{n}", "--slots", "8"]
        environment = {"MAINSPRING_URL": f"http://127.0.0.1:{port}", "MAINSPRING_TOKEN": token}
        longest_s = 2 * SESSION_LEASE_S
        self._add(stack, "worker", Part(f"worker-{n}", arguments, environment, door, self.folder, longest_s))

    def _add(self, stack: contextlib.AsyncExitStack, role: str, part: Part) -> None:
        part.start()
        stack.callback(part.abandon)
        self.parts[role].append(part)

    async def supervise(self) -> None:
        while True:
            for part in itertools.chain.from_iterable(self.parts.values()):
                part.supervise()
            await later(0.5)

    def tell(self) -> None:
        for log in sorted(self.folder.glob("*.log")):
            print(f"== {log.name}\n{log.read_text(errors='replace')[-2000:]}")

    def draw(self, random: Random) -> tuple[Part, str]:
        """Choose a part and a fault. Only servers talk to a database, whose answers to commits can be lost."""
        part = random.choice(self.parts[random.choice(("scheduler", "worker", "api"))])
        return part, random.choice([f for f in FAULTS if f != "lose_commits" or part not in self.parts["worker"]])


async def _opened(stack: contextlib.AsyncExitStack, door: Proxy) -> Proxy:
    server = await door.run()
    stack.callback(door.end)
    stack.callback(server.close)
    return door


async def _ready(http: httpx2.AsyncClient, url: str) -> bool:
    try:
        return (await http.get(f"{url}/readyz")).status_code == 200
    except httpx2.HTTPError:
        return False


@contextlib.asynccontextmanager
async def topology(folder: Path, url: str, worker_token: str) -> AsyncIterator[Topology]:
    async with contextlib.AsyncExitStack() as stack:
        running = Topology(folder, url)
        supervisor = asyncio.create_task(running.supervise())
        try:
            await running.open(stack, worker_token)
            yield running
        except BaseException:
            running.tell()
            raise
        finally:
            supervisor.cancel()
