"""`mainspring dev` from an empty folder with real processes: first steps, and crashes of each part."""

from __future__ import annotations

import re
import signal
import socket
import stat
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import pytest

from mainspring.domain.job import JobSpec, Misfire, ShellTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from tests.support.fire_checker import judge
from tests.support.processes import Dev, alive, children, dev, until

JOBS = 100
EVERY_S = 4


async def test_a_job_fires_and_its_line_appears(tmp_path: Path) -> None:
    async with dev(tmp_path) as running:
        token = tmp_path / ".mainspring" / "token"
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        async with running.client() as client:
            task = ShellTask(argv=("echo", "hello from {{fire_at}}"))
            await client.create_job(JobSpec(name="hello", task=task, schedule=ScheduleSpec(every=1)))
            line = re.compile(r"✔ hello  [0-9a-f-]{18}  late \d+ m?s  took \d+ m?s")
            await until("a green line", lambda: line.search(running.text()) is not None, within_s=20)
            (found, *_) = (await client.history("hello", limit=1)).items
            logs = await client.logs(found.execution_id)
            assert logs.chunks[0].text == f"hello from {found.fire_at:%Y-%m-%dT%H:%M:%SZ}\n"
        family = children(running.process.pid)
        assert await running.stop() == 0
        assert "the data is kept" in running.text() and "died" not in running.text()
        assert not any(map(alive, family)), "nothing outlives it"

    async with dev(tmp_path) as again:
        assert "1 job scheduled" in again.text(), "a second start finds its data again"


async def test_the_first_screen_complains_of_nothing(tmp_path: Path) -> None:
    async with dev(tmp_path) as running:
        assert "✖" not in running.text() and "error" not in running.text(), running.text()


async def test_a_taken_port_is_told_before_anything_is_started(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        running = Dev(tmp_path, taken.getsockname()[1])
        await until("the end", running.dead, within_s=30)
    assert "cannot listen" in running.text() and "--port" in running.text()
    assert running.process.returncode == 1
    assert not (tmp_path / ".mainspring").exists()


@pytest.mark.fault
async def test_after_kill_9_nothing_is_left_running_and_the_next_start_recovers(tmp_path: Path) -> None:
    async with dev(tmp_path) as running:
        async with running.client() as client:
            task = ShellTask(argv=("sleep", "600"))
            await client.create_job(JobSpec(name="sleeper", task=task))
            await client.trigger("sleeper")
            family = children(running.process.pid)
            await until("the sleeper", lambda: any(_sleepers(family)), within_s=20)
        sleepers = _sleepers(family)
        running.process.send_signal(signal.SIGKILL)
        await until("the end of the family", lambda: not any(map(alive, [*family, *sleepers])), within_s=40)
    async with dev(tmp_path) as again:
        assert "1 job scheduled" in again.text()


def _sleepers(family: list[int]) -> list[int]:
    from tests.support.processes import command_line

    return [pid for parent in family if alive(parent) for pid in children(parent) if "sleep 600" in command_line(pid)]


@pytest.mark.fault
@pytest.mark.requirement(43)
async def test_kill_9_of_worker_server_and_database_misses_and_doubles_nothing(tmp_path: Path) -> None:
    """A hundred jobs; each part is killed once; then each fire has one finished execution."""
    evidence = tmp_path / "evidence"
    script = f'echo "$MAINSPRING_EXECUTION_ID $MAINSPRING_ATTEMPT" >> {evidence}; sleep 0.5'
    async with dev(tmp_path, "--slots", "40") as running:
        begun = datetime.now(UTC)
        async with running.client() as client:
            for n in range(JOBS):
                await client.create_job(
                    JobSpec(
                        name=f"job-{n:03}",
                        task=ShellTask(argv=(script,), shell=True),
                        overlap="allow",
                        misfire=Misfire(policy="all"),
                        schedule=ScheduleSpec(every=EVERY_S, aligned=True),
                    )
                )
        created = datetime.now(UTC)
        lines = Lines(evidence)
        for part in ("mainspring.cli.main worker", "mainspring.cli.main serve", "postgres"):
            await until(f"work before the kill of {part}", lines.more(JOBS), within_s=60)
            await running.kill(part)
            await until(f"work after the kill of {part}", lines.more(2 * JOBS), within_s=60)
        async with running.client() as client:
            for n in range(JOBS):
                await client.pause_job(f"job-{n:03}")
        url = running.database_url
        await _until_idle(url)
        await _check(url, evidence, begun=begun, created=created)


class Lines:
    """The number of lines that the tasks have written."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> list[str]:
        return self._file.read_text().splitlines() if self._file.exists() else []

    def count(self) -> int:
        return len(self.read())

    def more(self, n: int) -> Callable[[], bool]:
        target = self.count() + n
        return lambda: self.count() >= target


async def _until_idle(url: str) -> None:
    connection = await asyncpg.connect(url, server_settings={"search_path": "mainspring"})
    try:
        for _ in range(600):
            if await connection.fetchval("SELECT count(*) FROM executions") == 0:
                return
            await connection.execute("SELECT pg_sleep(0.1)")
        rows = await connection.fetch("SELECT state, count(*) FROM executions GROUP BY state")
        raise AssertionError(f"still live: {[tuple(r) for r in rows]}")
    finally:
        await connection.close()


async def _check(url: str, evidence: Path, *, begun: datetime, created: datetime) -> None:
    """Compare the independent fire checker with the lines that the tasks have written."""
    connection = await asyncpg.connect(url, server_settings={"search_path": "mainspring"})
    rows = await connection.fetch("SELECT execution_id, state, reason, fires FROM history")
    jobs = await connection.fetch("SELECT created_at FROM jobs")
    await connection.close()
    (await judge(url, every_s=lambda _: EVERY_S)).demand("kill -9 of worker, server and database")
    for row in rows:
        # An instant that came due in the very moment of the pause is on record, run or not.
        assert row["state"] == "succeeded" or (row["reason"], row["fires"]) == ("paused", 1), dict(row)
    added = [row["created_at"] for row in jobs]
    assert begun <= min(added) and max(added) <= created
    starts = Counter(Lines(evidence).read())
    assert max(starts.values()) == 1, "an attempt was started twice"
    ran = {str(row["execution_id"]) for row in rows if row["state"] == "succeeded"}
    assert {line.split()[0] for line in starts} == ran, "run without a fire"
