"""Mainspring as its users have it: `serve`, one worker, the Python client in its own process. Each row starts fresh."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from firing import every_key, rss_mb, seed, until_owned
from harness import EMPTY, Machine, processor_s
from load import Load, load
from peers import install
from peers.processes import Client, times_of, until_empty, until_times

from mainspring.domain.job import JobSpec, NoopTask, PythonTask
from mainspring.domain.workflow.spec import Step, WorkflowSpec

SERVER = "api+scheduler"
FUNCTIONS = install.FOLDER / "mainspring_functions.py"
LEFT = "SELECT EXISTS (SELECT FROM executions)"
DRAIN_SLOTS = 4000
HERD_LEAD_S = 30
HERD_EACH_S = 0.0006  # for each schedule that is inserted directly into the tables


@contextlib.contextmanager
def recording(file: Path) -> Iterator[None]:
    """Give the processes started meanwhile the file to which functions append."""
    os.environ["BENCH_FILE"] = str(file)
    try:
        yield
    finally:
        del os.environ["BENCH_FILE"]


@dataclass
class System:
    """One server process and what it needs."""

    target: Machine

    @contextlib.asynccontextmanager
    async def serving(self, seeding: Callable[[], Awaitable[None]] | None = None) -> AsyncIterator[None]:
        """A running server with the jobs of all rows; afterwards nothing runs and no execution is left."""
        try:
            if seeding is not None:
                await seeding()
            self.target.serve("api", "scheduler")
            await self.target.until_ready()
            async with self.target.client() as client:
                for name in ("first_line", "nothing"):
                    await client.create_job(JobSpec(name=name, task=PythonTask(f"mainspring_functions:{name}")))
                await client.create_job(JobSpec(name="noop", task=NoopTask()))
            yield
        finally:
            for role in ("worker", SERVER):
                self.target.stop(role)
            await self._clear()

    async def _clear(self) -> None:
        async with self.target.database.connection() as connection:
            await connection.execute(EMPTY, timeout=600)

    def client(self, file: Path | None = None, job: str = "nothing") -> Client:
        env = {"BENCH_DSN": self.target.url, "BENCH_TOKEN": self.target.token, "BENCH_JOB": job}
        if file is not None:
            env["BENCH_FILE"] = str(file)
        return Client([sys.executable, str(install.FOLDER / "mainspring_peer.py")], env)

    def used(self) -> dict[str, float]:
        found = self.target.cpu_s()
        (worker,) = self.target.processes["worker"]
        own, family = processor_s(worker.pid)
        return {
            "api": found[SERVER],
            "postgresql": found["postgresql"],
            "worker": own,
            "runner": family - own,
        }

    async def latency(self, file: Path, n: int, warm_up: int, rate: int) -> tuple[list[float], dict[str, float]]:
        """Return milliseconds from the call to the function's first line, and CPU seconds by process."""
        async with self.serving():
            with recording(file):
                self.target.work("-m", str(FUNCTIONS), "--pass-env", "BENCH_FILE", slots=100)
            used, client_s = await self.client(file).paced(n, warm_up, rate, self.used)
            times = await until_times(file, n)
        return [(at - sent) * 1000 for sent, at in times], {**used, "client": client_s}

    async def singles(self, n: int, in_flight: int) -> float:
        async with self.serving():
            return float((await self.client().ask("singles", n, in_flight))["per_s"])

    async def bulk(self, n: int, batch: int) -> float:
        async with self.serving():
            return float((await self.client(job="noop").ask("bulk", n, batch))["per_s"])

    async def endpoint(self, connections: int, seconds: float) -> Load:
        """Single submits without a worker: they are queued."""
        async with self.serving():
            url = f"{self.target.url}/api/v1/jobs/noop/trigger"
            await load(url, self.target.token, connections=connections, seconds=1, method="POST", body="{}")
            return await load(
                url, self.target.token, connections=connections, seconds=seconds, method="POST", body="{}"
            )

    async def status(self, queued: int, connections: list[int], seconds: float) -> dict[int, Load]:
        """Reads of a job with that many queued executions, for each number of connections."""
        async with self.serving():
            await self.client(job="noop").ask("bulk", queued, min(1000, queued))
            url = f"{self.target.url}/api/v1/jobs/noop"
            await load(url, self.target.token, connections=1, seconds=1)
            return {
                count: await load(url, self.target.token, connections=count, seconds=seconds) for count in connections
            }

    async def drain(self, file: Path, job: str, n: int) -> float:
        """Return executions per second from the first start (of a function, if it is one) until none is left."""
        async with self.serving():
            await self.client(job=job).ask("bulk", n, 1000)
            with recording(file):
                self.target.work("-m", str(FUNCTIONS), "--pass-env", "BENCH_FILE", slots=DRAIN_SLOTS)
            end = await until_empty(self.target.postgres.dsn, LEFT)
            async with self.target.database.connection() as connection:
                row = await connection.fetchrow(
                    "SELECT count(*) AS n, extract(epoch FROM min(started_at))::float AS first FROM history"
                    " WHERE state = 'succeeded'"
                )
            assert row["n"] == n, f"{row['n']} of {n} succeeded"
            first = min((at for _, at in times_of(file)), default=row["first"])
            return float(n / (end - first))

    async def herd(self, file: Path, count: int) -> float:
        """Distinct schedules due at one instant: return how long after it the last function began, in seconds."""
        due = int(time.time() + HERD_LEAD_S + count * HERD_EACH_S)

        async def seeding() -> None:
            # Distinct intervals with one instant in common.
            keys = [every_key(3_600_000 + 1000 * number, due * 1000) for number in range(count)]
            task = PythonTask("mainspring_functions:due")
            await seed(self.target, keys, jobs=count, prefix="herd-", task=task)

        async with self.serving(seeding):
            await until_owned(self.target)
            with recording(file):
                self.target.work("-m", str(FUNCTIONS), "--pass-env", "BENCH_FILE", slots=DRAIN_SLOTS)
            assert time.time() < due - 5, "creating the schedules took too long"
            await asyncio.sleep(due - time.time())
            return max(at for _, at in await until_times(file, count)) - due

    async def memory(self, count: int) -> float:
        """Return the megabytes that distinct schedules add to a scheduler of its own."""
        found = []
        try:
            for number in (0, count):
                keys = [every_key(3_600_000 + 1000 * n, 0) for n in range(number)]
                await seed(self.target, keys or [every_key(3_600_000, 0)], jobs=number, prefix="mem-")
                self.target.serve("scheduler")
                await until_owned(self.target)
                found.append(rss_mb(self.target))
                self.target.stop("scheduler")
                await self._clear()
        finally:
            self.target.stop("scheduler")
            await self._clear()
        return found[1] - found[0]

    async def flow(self, file: Path, kind: str, n: int, times: int) -> list[float]:
        """Return the seconds from starting a run until its last function's first line, for each run."""
        first, last = PythonTask("mainspring_functions:nothing"), PythonTask("mainspring_functions:due")
        if kind == "chain":
            steps = {f"s{i}": Step(task=first, needs=(f"s{i - 1}",) if i else ()) for i in range(n - 1)}
            steps["last"] = Step(task=last, needs=(f"s{n - 2}",))
        else:
            steps = {f"s{i}": Step(task=first) for i in range(n)}
            steps["last"] = Step(task=last, needs=tuple(steps))
        took = []
        async with self.serving(), self.target.client() as client:
            with recording(file):
                self.target.work("-m", str(FUNCTIONS), "--pass-env", "BENCH_FILE", slots=100)
            await client.apply_workflow(WorkflowSpec(name="flow", steps=steps))
            for number in range(times + 1):
                begun = time.time()
                await client.start_run("flow")
                found = [at for sent, at in await until_times(file, number + 1, sent=1.0)]
                took.append(max(found) - begun)
        return took[1:]
