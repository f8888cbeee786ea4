"""`mainspring watch` against real processes that are killed."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from mainspring.alerts.sign import verified
from mainspring.api.auth import issue_token
from mainspring.cli.watch import metrics_problem
from mainspring.clock import SystemClock
from mainspring.embedded.server import EmbeddedServer
from mainspring.store.db import Database
from tests.conftest import clone
from tests.support.api_processes import api_processes
from tests.support.http_receiver import Received, Receiver, receiving, reply
from tests.support.processes import until

pytestmark = pytest.mark.anyio
SECRET = "whsec_" + "c2VjcmV0" * 4


async def run(*words: str, env: dict[str, str]) -> asyncio.subprocess.Process:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "mainspring.cli.main",
        *words,
        env=clean | env,
        stdout=pipe,
        stderr=asyncio.subprocess.STDOUT,
    )


@asynccontextmanager
async def running(*words: str, env: dict[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await run(*words, env=env)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        out, _ = await process.communicate()
        print(out.decode())


async def once(env: dict[str, str]) -> tuple[int | None, str]:
    process = await run("watch", "--once", "--shard-silence", "10s", env=env)
    out, _ = await process.communicate()
    return process.returncode, out.decode()


async def reader(database_url: str) -> str:
    async with Database(database_url, size=1) as database, database.connection() as connection:
        return await issue_token(connection, tenant=1, name="watch", scopes=("read",))


def alarms(receiver: Receiver) -> list[Received]:
    return [received for received in receiver.got if received.line.startswith("POST")]


async def alarm(receiver: Receiver, state: str, reason: str) -> dict[str, str]:
    """The first alarm of this state and reason. On a busy machine there may be others."""

    def found() -> list[dict[str, str]]:
        for received in alarms(receiver):
            assert verified(SECRET, received.headers, received.body, now_s=SystemClock().now_ms() / 1000)
        bodies = [msgspec.json.decode(received.body, type=dict[str, str]) for received in alarms(receiver)]
        return [body for body in bodies if body["state"] == state and reason in body["reason"]]

    await until(f"an alarm that is {state}: {reason}", lambda: bool(found()), within_s=120)
    return found()[0]


async def test_alarms_when_schedulers_and_then_servers_are_gone(postgres: EmbeddedServer, tmp_path: Path) -> None:
    database_url = await clone(postgres)
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    scheduler = ("serve", "--roles", "scheduler")
    async with receiving(lambda received: reply()) as receiver:
        watching: tuple[str, ...] = (
            "watch",
            "--interval",
            "1s",
            "--after",
            "1s",
            "--shard-silence",
            "3s",  # a stall of the machine may add alarms; those of the test are found among them
            "--webhook-secret-file",
        )
        watching += (str(secret), "--webhook", receiver.url("/alarm"), "--ping", receiver.url("/ping?from=watch"))
        async with api_processes(tmp_path, database_url, 1) as (url,):
            env = {"MAINSPRING_URL": url, "MAINSPRING_TOKEN": await reader(database_url)}
            assert "no scheduler serves" in (await once(env))[1]
            async with running(*scheduler, env={"MAINSPRING_DATABASE_URL": database_url}) as serving:
                while (await once(env))[0] != 0:
                    pass
                watcher = await run(*watching, env=env)
                await until(
                    "a ping", lambda: any("/ping?from=watch" in each.line for each in receiver.got), within_s=60
                )
                serving.kill()
                first = await alarm(receiver, "firing", "no scheduler serves")
                assert (first["event"], first["server"]) == ("cluster.silent", url)
            async with running(*scheduler, env={"MAINSPRING_DATABASE_URL": database_url}):
                assert (await alarm(receiver, "resolved", "answers again"))["event"] == "cluster.recovered"
                assert "works" in (await once(env))[1]
        await alarm(receiver, "firing", "does not answer")
        code, out = await once(env)
        assert code == 1 and "does not answer" in out
        watcher.terminate()
        out_bytes, _ = await watcher.communicate()
        assert watcher.returncode == 0, "a clean end"
        assert "alarm firing" in out_bytes.decode()


async def test_an_alarm_is_repeated_until_every_receiver_has_accepted_it(tmp_path: Path) -> None:
    answers = iter(["503 Service Unavailable", "503 Service Unavailable"])
    evidence = tmp_path / "alarms"
    note = ("sh", "-c", f'echo "$MAINSPRING_WATCH_STATE $MAINSPRING_WATCH_REASON" >> {evidence}')
    async with receiving(lambda received: reply(next(answers, "200 OK"))) as receiver:
        env = {"MAINSPRING_URL": "http://127.0.0.1:1"}
        words = ("watch", "--interval", "1s", "--after", "0s", "--webhook", receiver.url("/alarm"), "--", *note)
        async with running(*words, env=env):
            await until("three attempts", lambda: len(receiver.got) == 3, within_s=60)
        bodies = [msgspec.json.decode(each.body) for each in receiver.got]
        assert {body["state"] for body in bodies} == {"firing"}
        (line,) = evidence.read_text().splitlines()
        assert line.startswith("firing http://127.0.0.1:1 does not answer"), "the program had accepted it at once"


def test_what_metrics_say() -> None:
    ages = 'mainspring_shard_heartbeat_age_seconds{shard="%d"} %s\n'
    assert metrics_problem("".join(ages % (n, "1.5") for n in range(64)), 30) is None
    assert metrics_problem("mainspring_firing_held 0.0\n", 30) is None
    assert "3 shards" in str(metrics_problem("".join(ages % (n, "45.0") for n in range(3)) + ages % (4, "2.0"), 30))
    assert "ever" in str(metrics_problem(ages % (0, "+Inf"), 30))
    assert "held" in str(metrics_problem("mainspring_firing_held 1.0\n", 30))
