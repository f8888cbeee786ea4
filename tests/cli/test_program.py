"""The installed program against a real server and worker."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainspring.zones import rules_version
from tests.conftest import Cluster

pytestmark = pytest.mark.anyio

PROGRAM = str(Path(sys.executable).with_name("mainspring"))


@dataclass
class Done:
    code: int | None
    out: str
    err: str

    def json(self) -> Any:
        return msgspec.json.decode(self.out)


class Terminal:
    """A folder as `mainspring dev` creates it, and the program started in it."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.folder = folder
        (folder / ".mainspring").mkdir()
        (folder / ".mainspring" / "url").write_text(cluster.url)
        token = folder / ".mainspring" / "token"
        token.touch(mode=0o600)
        token.write_text(cluster.token)

    async def start(self, *words: str) -> asyncio.subprocess.Process:
        env = {"HOME": str(self.folder), "PATH": "/usr/bin:/bin", "TZ": "Asia/Tokyo"}
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            PROGRAM,
            *words,
            cwd=self.folder,
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
        )

    async def type(self, *words: str) -> Done:
        process = await self.start(*words)
        out, err = await process.communicate()
        return Done(process.returncode, out.decode(), err.decode())


@pytest.fixture(scope="module")
async def working(cluster: Cluster) -> AsyncIterator[Cluster]:
    async with cluster.worker():
        yield cluster


@pytest.fixture
def terminal(tmp_path: Path, working: Cluster) -> Terminal:
    return Terminal(tmp_path, working)


async def test_a_job_is_added_and_fires(terminal: Terminal) -> None:
    feed = await terminal.start("events", "--follow")
    added = await terminal.type("add", "hello", "--every", "1s", "--", "echo", "hi")
    assert added.code == 0, added.err
    first, *fires = added.out.splitlines()
    assert first == "hello added: every second"
    assert len(fires) == 3
    assert all(" JST  " in line and line.endswith(" UTC") for line in fires)
    assert feed.stdout is not None
    async for line in feed.stdout:
        # On a busy machine a start may be told, or a fire skipped, before the first success.
        if "✔ hello  " in line.decode():
            break
    feed.send_signal(signal.SIGINT)
    await feed.communicate()
    assert feed.returncode == 130
    again = await terminal.type("add", "hello", "--every", "1s", "--", "echo", "hi")
    assert again.code == 5
    assert "--replace" in again.err
    same = await terminal.type("add", "hello", "--replace", "--every", "1s", "--", "echo", "hi")
    assert same.out.startswith("hello unchanged")
    other = await terminal.type("add", "hello", "--replace", "--cron", "0 2 * * *", "--", "echo", "hi")
    assert other.out.startswith("hello changed: at 02:00 every day")
    assert "✔" in (await terminal.type("jobs", "list")).out
    history = await terminal.type("jobs", "history", "hello", "-o", "json")
    assert "succeeded" in {item["state"] for item in history.json()["items"]}


async def test_output_is_followed_live_and_the_exit_code_tells_the_end(terminal: Terminal) -> None:
    # It waits for its folder to say "go": the line before it must have arrived while it ran.
    script = 'echo begun; until [ -e "$GO" ]; do :; done; echo problem >&2; exit 3'
    go = terminal.folder / "go"
    added = await terminal.type("add", "steps", "--retries", "0", "--env", f"GO={go}", "--", "sh", "-c", script)
    assert added.code == 0, added.err
    process = await terminal.start("run", "steps", "--follow")
    assert process.stdout is not None
    assert await process.stdout.readline() == b"begun\n"
    go.touch()
    out, err = await process.communicate()
    assert (process.returncode, out) == (10, b"")
    assert "problem\n" in err.decode()
    assert "failed: exit 3" in err.decode()
    logs = await terminal.type("executions", "logs", "@last")
    assert (logs.out, logs.err) == ("begun\n", "problem\n")


async def test_a_running_execution_is_cancelled(terminal: Terminal) -> None:
    await terminal.type("add", "endless", "--", "sh", "-c", "echo begun; exec tail -f /dev/null")
    process = await terminal.start("run", "endless", "--follow")
    assert process.stdout is not None
    assert await process.stdout.readline() == b"begun\n"
    late = await terminal.type("executions", "wait", "@last", "--timeout", "1ms")
    assert late.code == 8
    listed = await terminal.type("executions", "list", "--job", "endless", "-o", "name")
    beginning = listed.out.strip()[:18]
    cancelled = await terminal.type("executions", "cancel", beginning, "--reason", "wrong data")
    assert cancelled.code == 0, cancelled.err
    await process.communicate()
    assert process.returncode == 11


async def test_the_same_key_is_the_same_execution_and_params_arrive(terminal: Terminal) -> None:
    await terminal.type("add", "keyed", "--", "true")
    first = await terminal.type("run", "keyed", "--key", "k", "-p", "n=5", "-p", "s=x", "--wait", "-o", "json")
    again = await terminal.type("run", "keyed", "--key", "k", "-p", "n=5", "-p", "s=x", "-o", "json")
    assert first.code == again.code == 0
    assert first.json()["execution_id"] == again.json()["execution_id"]
    assert first.json()["params"] == {"n": 5, "s": "x"}


async def test_timeouts_have_their_exit_code(terminal: Terminal) -> None:
    await terminal.type("add", "slow", "--timeout", "50ms", "--retries", "0", "--", "tail", "-f", "/dev/null")
    assert (await terminal.type("run", "slow", "--wait")).code == 12


async def test_pause_edit_delete(terminal: Terminal) -> None:
    await terminal.type("add", "nightly", "--cron", "0 2 * * *", "--tz", "Europe/Berlin", "--env", "A=1", "--", "true")
    paused = await terminal.type("jobs", "pause", "nightly", "--reason", "repairs")
    assert paused.code == 0, paused.err
    assert "paused: repairs" in (await terminal.type("jobs", "get", "nightly")).out
    # Replacing the definition must not set a paused job going.
    await terminal.type("add", "nightly", "--replace", "--cron", "0 3 * * *", "--", "true")
    job = (await terminal.type("jobs", "get", "nightly", "-o", "json")).json()
    assert (job["state"], job["spec"]["schedule"]) == ("paused", {"cron": "0 3 * * *"})
    assert job["spec"]["task"].get("env", {}) == {}
    assert (await terminal.type("jobs", "resume", "nightly")).code == 0
    edited = await terminal.type("jobs", "edit", "nightly", "--every", "1h", "--", "date")
    assert edited.out.startswith("nightly changed: every hour")
    assert len((await terminal.type("jobs", "next", "nightly", "-n", "5", "-o", "json")).json()["fires"]) == 5
    assert (await terminal.type("jobs", "delete", "nightly")).code == 2
    assert (await terminal.type("jobs", "delete", "nightly", "--yes")).code == 0
    assert (await terminal.type("jobs", "get", "nightly")).code == 3


async def test_refusals_come_with_place_and_hint(terminal: Terminal) -> None:
    refused = await terminal.type("add", "x", "--cron", "0 25 * * *", "--", "true")
    assert refused.code == 6
    assert "/schedule/cron" in refused.err
    assert "0-23" in refused.err
    assert (await terminal.type("--token", "ms_wrong", "jobs", "list")).code == 4
    (terminal.folder / ".mainspring" / "token").chmod(0o644)
    unsafe = await terminal.type("jobs", "list")
    assert unsafe.code == 4
    assert "chmod 600" in unsafe.err


async def test_the_doctor_workers_and_the_way_in(terminal: Terminal, working: Cluster) -> None:
    examined = await terminal.type("doctor")
    assert examined.code == 0, examined.out
    assert examined.out.splitlines()[-1] == "healthy"
    workers = await terminal.type("workers", "list", "-o", "json")
    assert [worker["name"] for worker in workers.json()["items"]] == ["test"]
    link = (await terminal.type("ui")).out.strip()
    assert link.startswith(f"{working.url}/login?k=")


async def test_calendars_from_making_to_deleting(terminal: Terminal) -> None:
    (terminal.folder / "days.txt").write_text("2090-12-25  # Christmas\n\n* * SAT,SUN\n")
    made = await terminal.type("calendars", "set", "holidays", "--file", "days.txt", "--date", "2090-12-26")
    assert (made.code, made.out) == (0, "holidays, version 1: closed on 2 dates and * * SAT,SUN\n"), made.err
    assert made.err == "no fires changed\n"
    added = await terminal.type(
        "add",
        "report",
        "--cron",
        "0 9 * * *",
        "--calendar",
        "holidays",
        "--roll",
        "next",
        "--jitter",
        "5m",
        "--max-fires",
        "3",
        "--",
        "true",
    )
    words = "at 09:00 every day, by the calendar holidays, moved to the next open day, spread over 5 minutes, 3 times"
    assert added.out.splitlines()[0] == f"report added: {words}"
    assert len(added.out.splitlines()) == 4
    tried = await terminal.type("calendars", "set", "holidays", "--rule", "* * *", "--dry-run")
    assert tried.code == 0 and tried.out == ""
    assert tried.err.splitlines()[:2] == ["fires of 1 job would change", "  report"]
    assert tried.err.splitlines()[-1] == "    after  no more fires"
    assert (await terminal.type("calendars", "get", "holidays", "-o", "json")).json()["jobs"] == 1
    listed = await terminal.type("calendars", "list")
    assert " ".join(listed.out.splitlines()[1].split()) == "holidays closed on 2 dates and * * SAT,SUN 1 1"
    days = await terminal.type("calendars", "days", "holidays", "-n", "14")
    assert [line.split()[1] for line in days.out.splitlines()] in (
        ["Saturday", "Sunday"] * 2,
        ["Sunday", "Saturday", "Sunday", "Saturday"],
    )
    refused = await terminal.type("calendars", "delete", "holidays", "--yes")
    assert refused.code == 5 and "in use by report" in refused.err
    assert (await terminal.type("calendars", "set", "holidays")).code == 2
    assert (await terminal.type("calendars", "set", "holidays", "--rule", "x")).code == 6
    assert (await terminal.type("jobs", "edit", "report", "--every", "1h")).code == 0
    assert (await terminal.type("calendars", "delete", "holidays")).code == 2
    assert (await terminal.type("calendars", "delete", "holidays", "--yes")).out == "holidays deleted\n"
    assert (await terminal.type("calendars", "get", "holidays")).code == 3
    assert "closed on 2 dates" in (await terminal.type("calendars", "versions", "holidays")).out


async def test_blackouts_from_adding_to_deleting(terminal: Terminal) -> None:
    added = await terminal.type("blackouts", "add", "--until", "+2h", "--queue", "long", "--reason", "upgrade")
    assert added.code == 0 and added.out.endswith("for queue long\n"), added.err
    await terminal.type("add", "held", "--every", "30m", "--queue", "long", "--", "true")
    fires = await terminal.type("jobs", "next", "held")
    assert fires.err.count("falls into a blackout") == 3, fires.err
    weekly = await terminal.type(
        "blackouts",
        "add",
        "--cron",
        "0 2 * * SUN",
        "--tz",
        "Europe/Berlin",
        "--for",
        "3h",
        "--job",
        "held",
        "-o",
        "json",
    )
    assert weekly.json()["description"] == "at 02:00 on Sunday (Europe/Berlin), for 3 hours"
    listed = (await terminal.type("blackouts", "list")).out.splitlines()
    assert len(listed) == 3 and "job held" in listed[1] and "upgrade" in listed[2] and "active, ends in" in listed[2]
    for line in listed[1:]:
        gone = await terminal.type("blackouts", "delete", line.split()[0])
        assert (gone.code, gone.out.endswith(" deleted\n")) == (0, True), gone.err
    assert (await terminal.type("blackouts", "list")).err == "no blackouts\n"
    assert (await terminal.type("blackouts", "delete", "0")).code == 3
    assert (await terminal.type("blackouts", "add", "--reason", "nothing")).code == 6


async def test_the_doctor_says_by_which_time_zone_rules(terminal: Terminal, working: Cluster) -> None:
    await terminal.type("add", "old", "--cron", "0 2 * * *", "--tz", "Europe/Berlin", "--", "true")
    async with working.database.connection() as connection:
        await connection.execute("UPDATE job_versions SET tzdata = '1999z' WHERE spec ->> 'name' = 'old'")
    told = (await terminal.type("doctor")).out
    assert f"time zone rules {rules_version()}" in told
    assert "1 job saved under time zone rules 1999z" in told
    assert (await terminal.type("jobs", "versions", "old", "-o", "json")).json()["items"][0]["tzdata"] == "1999z"


async def test_a_follower_learns_of_retries_and_of_the_cause(terminal: Terminal) -> None:
    retries = ("--retries", "1", "--retry-base", "100ms", "--retry-jitter", "none")
    await terminal.type("add", "flaky", *retries, "--", "sh", "-c", "echo disk full >&2; exit 3")
    done = await terminal.type("run", "flaky", "--follow")
    assert done.code == 10
    lines = done.err.splitlines()
    assert lines.count("disk full") >= 2
    again = next(n for n, line in enumerate(lines) if line.startswith("attempt 1 failed: exit code 3"))
    assert "; retry 1 of 1 in " in lines[again]
    assert "disk full" in lines[again:]
    assert "  exit code 3: disk full" in lines
    assert lines[-1].startswith("  see it with: mainspring dead-letters get ")
