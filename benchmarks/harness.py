"""Shared by all benchmarks: real processes on a durable PostgreSQL, their CPU time, and publication of results."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

from mainspring.api.auth import issue_token
from mainspring.client import AsyncClient
from mainspring.domain.grants import EVERYTHING
from mainspring.embedded.server import EmbeddedServer
from mainspring.store.db import Database
from mainspring.store.migrate import migrate

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
TICK = os.sysconf("SC_CLK_TCK")
WAL_FILES = 64
EMPTY = """
DO $$
DECLARE
    refusing regclass[] := ARRAY(SELECT tgrelid::regclass FROM pg_trigger WHERE tgname = 'never_truncated');
    one regclass;
BEGIN
    FOREACH one IN ARRAY refusing LOOP EXECUTE format('ALTER TABLE %s DISABLE TRIGGER never_truncated', one); END LOOP;
    TRUNCATE executions, history, attempts, job_versions, jobs, schedules, idempotency_keys CASCADE;
    FOREACH one IN ARRAY refusing LOOP EXECUTE format('ALTER TABLE %s ENABLE TRIGGER never_truncated', one); END LOOP;
END $$;
"""
"""Removes all jobs and executions. Append-only tables refuse TRUNCATE, unless their owner switches that off."""


@dataclass
class Machine:
    """A database and the processes around it."""

    postgres: EmbeddedServer
    database: Database
    url: str
    token: str
    worker_token: str
    processes: dict[str, list[subprocess.Popen[bytes]]] = field(default_factory=dict)

    def client(self) -> AsyncClient:
        return AsyncClient(self.url, self.token)

    def spawn(self, role: str, *argv: str, **env: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "mainspring.cli.main", *argv, "--log", "error"],
            env={**os.environ, **env},
            start_new_session=True,
        )
        self.processes.setdefault(role, []).append(process)
        return process

    def serve(self, *roles: str) -> None:
        port = self.url.rpartition(":")[2] if "api" in roles else "0"
        self.spawn(
            "+".join(roles),
            "serve",
            "--roles",
            ",".join(roles),
            "--port",
            port,
            MAINSPRING_DATABASE_URL=self.postgres.dsn,
            MAINSPRING_RATE_LIMIT="0",
            MAINSPRING_SCHEDULE_QUOTA="0",
        )

    def work(self, *options: str, slots: int, name: str = "bench", token: str = "") -> None:
        self.spawn(
            "worker",
            "worker",
            "--slots",
            str(slots),
            "--name",
            name,
            *options,
            MAINSPRING_URL=self.url,
            MAINSPRING_TOKEN=token or self.worker_token,
        )

    def cpu_s(self) -> dict[str, float]:
        """Return CPU seconds so far by role; PostgreSQL includes all its backends."""
        used = {role: sum(_cpu(p.pid) for p in group) for role, group in self.processes.items()}
        assert self.postgres.pid is not None
        used["postgresql"] = sum(_cpu(pid) for pid in _family(self.postgres.pid))
        return used

    async def until_ready(self) -> None:
        async with self.client() as client:
            for _ in range(600):
                with contextlib.suppress(Exception):
                    await client.jobs(limit=1)
                    return
                await asyncio.sleep(0.05)
        raise RuntimeError("the api did not come up")

    def stop(self, role: str) -> None:
        for process in self.processes.pop(role, []):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


@contextlib.asynccontextmanager
async def machine(
    kept: Path | None = None, settings: dict[str, str] | None = None, *, used: bool = False
) -> AsyncIterator[Machine]:
    """A durable PostgreSQL, migrated, with tokens, in a folder that is removed at the end, or in one that is kept.
    `used`: it has the files that one which has been at work for a day has."""
    with contextlib.ExitStack() as stack:
        folder = kept or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mainspring-bench-")))
        more = {"min_wal_size": f"{16 * WAL_FILES}MB"} if used else {}
        postgres = EmbeddedServer(folder, settings=more | (settings or {}) or None)
        await postgres.start()
        try:
            await migrate(postgres.dsn)
            if used:
                await make_wal(postgres)
            async with Database(postgres.dsn, size=4) as database:
                async with database.connection() as connection:
                    token = await issue_token(connection, tenant=1, name="bench", scopes=("admin",))
                    worker = await issue_token(
                        connection, tenant=1, name="bench worker", scopes=("worker",), grants=EVERYTHING
                    )
                found = Machine(postgres, database, f"http://127.0.0.1:{free_port()}", token, worker)
                try:
                    yield found
                finally:
                    for role in ["worker", *list(found.processes)]:
                        found.stop(role)
        finally:
            await postgres.stop()


async def make_wal(postgres: EmbeddedServer) -> None:
    """The log's files are used again and again, but a new cluster has only one: each further one is written in full,
    16 MB, while a commit waits for it."""
    connection = await asyncpg.connect(postgres.superuser_dsn())
    try:
        for _ in range(WAL_FILES):
            await connection.execute("SELECT pg_logical_emit_message(true, 'bench', 'a new file')")
            await connection.execute("SELECT pg_switch_wal()")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()
    await asyncio.to_thread(os.sync)


def quantile(values: list[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def loop_ms() -> float:
    """Return how fast the machine is now, as a median of nine: shared machines vary by half within a minute."""
    found = []
    for _ in range(9):
        started, x = time.process_time(), 1
        for _ in range(200_000):
            x = (x * 31 + 7) & 0xFFFFFFFF
        found.append((time.process_time() - started) * 1000)
    return sorted(found)[4]


def publish(
    name: str, lines: list[str], figures: dict[str, Any], *, command: str | None = None, written: bool = True
) -> None:
    """Print the figures, write them to RESULTS.md under this benchmark's heading, and print one line of JSON."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    dirty = subprocess.run(
        ["git", "status", "--porcelain", "src"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    head = [
        f"## {name}",
        "",
        f"- command: `{command or f'make bench ARGS={name}'}`",
        f"- machine: {os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release().split('-')[0]},"
        f" Python {platform.python_version()}; a fixed loop of Python took {loop_ms():.1f} ms then",
        f"- commit: {commit or 'none'}{' with changes' if dirty else ''}",
        "",
    ]
    section = "\n".join([*head, *lines, ""])
    sys.stdout.write("\n".join(lines) + "\n")
    title = "# Results\n\nEvery figure with its machine, commit and command.\n"
    old = RESULTS.read_text() if RESULTS.exists() else title
    kept = re.sub(rf"^## {re.escape(name)}\n.*?(?=^## |\Z)", "", old, flags=re.MULTILINE | re.DOTALL)
    if written:
        RESULTS.write_text(kept.rstrip() + "\n\n" + section)
    sys.stdout.write(json.dumps(figures) + "\n")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _cpu(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    # Own time and that of reaped children: ended backends count for their postmaster.
    return sum(int(fields[n]) for n in (11, 12, 13, 14)) / TICK


def processor_s(root: int) -> tuple[float, float]:
    """Return CPU seconds of a process alone, and with all its descendants."""
    fields = Path(f"/proc/{root}/stat").read_text().rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / TICK
    return own, sum(_cpu(pid) for pid in _family(root))


def resident_of_family(processes: list[subprocess.Popen[bytes]]) -> float:
    """Return the resident memory of processes and all their descendants, in MB."""
    pages = 0
    for pid in {pid for process in processes for pid in _family(process.pid)}:
        with contextlib.suppress(OSError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def resident_by_process(root: int) -> list[float]:
    """Return the resident memory of a process, then that of each of its descendants, in MB."""
    found = []
    for pid in _family(root):
        with contextlib.suppress(OSError):
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            found.append(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)
    return found


def memory_of_anonymous_pages(root: int) -> float:
    """Return the memory of a process and its descendants without shared buffers and files, in MB."""
    found = 0
    for pid in _family(root):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            found += next((int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:")), 0)
    return found / 1024


def _family(root: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(name))
    family, frontier = [root], [root]
    while frontier:
        frontier = [child for pid in frontier for child in parents.get(pid, [])]
        family += frontier
    return family
