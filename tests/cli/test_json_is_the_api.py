"""`-o json` of every command is what the API answered, for all commands of the program."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
import yaml
from click.testing import CliRunner

from mainspring.cli.main import COMMANDS, main
from mainspring.client.transport import Transport
from tests.conftest import Cluster
from tests.support.processes import until_async

pytestmark = pytest.mark.anyio

NO_SERVER = {
    "dev", "serve", "worker", "db migrate", "db status", "db prune", "db backup", "db verify", "db restore",
    "db hold", "db recovery-settings", "db resume", "cron explain", "cron next", "cron between", "completion",
    "config show", "config check", "validate", "schema", "secrets new-key", "login", "logout",
    "watch", "archive list", "archive write", "archive verify", "archive restore",
}  # fmt: skip
"""Commands that do not print an answer of the API."""
NO_ANSWER = {
    "jobs delete", "jobs needs remove", "workflows delete", "calendars delete", "blackouts delete",
    "reservations delete",
    "alerts delete", "alerts reset", "silences delete", "channels delete", "browser-sessions end",
    "tenants delete", "tokens revoke", "users delete", "roles delete",
    "secrets delete",
    "triggers delete",
}  # fmt: skip
"""Commands of requests whose answer is empty."""
OTHER_FORMAT = {
    "audit export": "writes one line for each entry",
    "audit verify": "shows one result, of as many requests as the log needs",
    "exec": "passes the output of the command through",
    "top": "is for a terminal",
    "executions export": "writes one line for each execution",
    "executions logs": "prints one value for each piece",
    "logs": "prints one value for each piece",
    "events": "prints one line for each execution",
    "workflows export": "writes a manifest",
    "export": "writes manifests",
    "diff": "shows one plan, of as many requests as the files need",
    "apply": "shows one plan, of as many requests as the files need",
}
IMPORTS = ("airflow", "apscheduler", "celery", "cloud-scheduler", "crontab", "eventbridge", "k8s", "quartz", "systemd")
OTHER_FORMAT |= {f"import {name}": "prints a comparison of fires" for name in IMPORTS}


def leaves() -> Iterator[str]:
    def walk(words: str, command: click.Command) -> Iterator[str]:
        if isinstance(command, click.Group):
            for name, inner in command.commands.items():
                yield from walk(f"{words} {name}", inner)
        else:
            yield words

    context = click.Context(main)
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        yield from walk(name, command)


class Program:
    """Runs commands in this process, and keeps the answers of the API."""

    def __init__(self, cluster: Cluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: list[Any] = []
        self.used: set[str] = set()
        self._args = ["--url", cluster.url, "--token", cluster.token]
        monkeypatch.chdir(folder)
        send = Transport.send

        @functools.wraps(send)
        async def kept(transport: Transport, *args: Any, **kwargs: Any) -> bytes:
            content = await send(transport, *args, **kwargs)
            self.answers.append(msgspec.json.decode(content) if content else None)
            return content

        monkeypatch.setattr(Transport, "send", kept)

    async def run(self, command: str, *args: str, format: str = "json", codes: tuple[int, ...] = (0,)) -> Any:
        self.answers.clear()
        self.used.add(command)
        words = [*self._args, *command.split(), "-o", format, *args]
        result = await asyncio.to_thread(CliRunner().invoke, main, words, prog_name="mainspring")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code in codes, (command, result.stderr)
        if format == "name":
            return result.stdout
        return msgspec.json.decode(result.stdout) if result.stdout else None

    async def equal(self, command: str, *args: str, codes: tuple[int, ...] = (0,)) -> Any:
        """Run a command; what it prints must be one of the answers, as a whole."""
        printed = await self.run(command, *args, codes=codes)
        assert printed is not None, command
        assert printed in self.answers, (command, printed, self.answers)
        return printed


@pytest.fixture
def program(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    return Program(cluster, tmp_path, monkeypatch)


WORKFLOW = """
kind: Workflow
metadata: {name: flow}
spec:
  steps:
    first: {shell: ["true"]}
    ask: {approval: {message: go, self_approval: true}, needs: [first]}
    hold: {event: {name: go, timeout: 1h}, needs: [ask]}
"""


async def test_what_is_printed_is_what_the_api_answered(program: Program, cluster: Cluster, tmp_path: Path) -> None:
    equal = program.equal
    async with cluster.worker(name="local", queues=("short", "long")):
        # Jobs
        await equal("add", "hello", "--every", "1h", "--", "echo", "hi")
        await equal("add", "other", "--", "false")
        await equal("jobs list")
        await equal("jobs get", "hello")
        await equal("jobs edit", "hello", "--priority", "7")
        await equal("jobs pause", "hello", "--reason", "why not")
        await equal("jobs resume", "hello")
        await equal("jobs next", "hello")
        await equal("jobs versions", "hello")
        await equal("jobs rollback", "hello", "1")
        await equal("jobs why", "hello")
        await equal("jobs ledger", "hello")
        await equal("jobs needs add", "other", "hello")
        await equal("jobs needs list", "other")
        await equal("jobs force-complete", "hello", "--reason", "r")
        await equal("jobs skip", "hello", "--reason", "r")
        # Executions
        made = await equal("run", "hello", "--wait")
        execution = made["execution_id"]
        await equal("jobs history", "hello")
        await equal("jobs stats", "hello")
        await equal("jobs suggest", "hello")
        await equal("executions list")
        await equal("executions get", execution)
        await equal("executions get", "@last")
        await equal("executions timeline", execution)
        await equal("executions artifacts", execution)
        await equal("executions wait", execution)
        await equal("executions requeue", execution)
        later = await equal("run", "hello", "--at", "+1h")
        await equal("why", later["execution_id"])
        await equal("executions cancel", later["execution_id"])
        # Dead letters
        await equal("jobs edit", "other", "--retries", "0")
        letter = (await equal("run", "other", "--wait", codes=(10,)))["execution_id"]
        await equal("dead-letters list")
        await equal("dead-letters list", "--group")
        await equal("dead-letters get", "@last")
        await equal("dead-letters claim", letter)
        await equal("dead-letters note", letter, "mine")
        await equal("dead-letters edit", letter, "-p", "n=1", codes=(0, 6))
        await equal("dead-letters replay", letter, "--dry-run")
        await equal("dead-letters dismiss", letter, "--reason", "known")
        # Capacity
        await equal("queues list")
        await equal("costs", "--days", "2")
        await equal("forecast", "--days", "2")
        await equal("queues set", "long", "--cap", "5")
        await equal("queues pause", "long")
        await equal("queues resume", "long")
        await equal("queues isolate", "none")
        await equal("workers list")
        shown = await program.run("workers show", "local")
        assert any(shown == worker for answer in program.answers for worker in answer["items"])
        await equal("workers drain", "local")
        await equal("workers resume", "local")
        await equal("workers token", "w", "--queue", "short")
        await equal("shards")
        await equal("doctor", codes=(0, 1))
        await equal("audit list")
        (tmp_path / "value").write_text("a-secret-value")
        await equal("secrets set", "password", "--file", str(tmp_path / "value"), "--job", "hello")
        await equal("secrets list")
        await equal("secrets get", "password")
        await equal("secrets rotate", "password", "--file", str(tmp_path / "value"))
        await equal("secrets keys")
        await equal("secrets rotate-key")
        await equal("secrets encrypt")
        await equal("ui")
        await equal("roles create", "nightly", "--scope", "read", "--scope", "operate")
        await equal("roles list")
        await equal("users create", "analyst", "--role", "nightly", "--display-name", "Analyst")
        await equal("users edit", "analyst", "--role", "viewer")
        await equal("users list")
        await program.run("users block", "analyst", codes=(5,))  # of users of an issuer only
        await equal("users unblock", "analyst")
        await equal("whoami")
        issued = await equal("tokens create", "laptop", "--user", "analyst", "--expires", "90d")
        await equal("tokens rotate", issued["token_id"], "--overlap", "5m")
        await equal("tokens list")
        await equal("tenants create", "second", "--max-jobs", "10")
        await equal("tenants edit", "second", "--weight", "2", "--max-jobs", "none", "--end-required")
        await equal("tenants list")
        await equal("tenants get", "second")
        await equal("tenants token", "second", "first")
        await equal("tenants export", "second")
        await equal("tenants suspend", "second", "--reason", "unpaid")
        await equal("tenants resume", "second")
        await equal("browser-sessions list")
        await equal("browser-sessions end", "--all")
        await equal("reservations add", "r", "--to", "+1h", "--anyway")
        await equal("reservations list")
        await program.run("queues set", "brief", "--max-duration", "1m")
        longer = ("--queue", "brief", "--timeout", "2h", "--reason", "r")
        for name, verb in (("one", "withdraw"), ("two", "refuse")):
            asked = await equal("duration-requests create", name, *longer)
            await program.run("duration-requests approve", asked["request_id"], codes=(4,))  # one's own
            await equal(f"duration-requests {verb}", asked["request_id"])
        await equal("duration-requests list")
        # Calendars
        await equal("calendars set", "days", "--date", "2090-12-25")
        await equal("calendars set", "days", "--date", "2090-12-26", "--dry-run")
        await equal("calendars list")
        await equal("calendars get", "days")
        await equal("calendars days", "days")
        await equal("calendars versions", "days")
        await equal("blackouts add", "--cron", "0 2 * * *", "--for", "1h", "--job", "hello")
        await equal("blackouts list")
        # Alerts
        await equal("alerts list")
        rule = (await equal("alerts rules"))["items"][0]["name"]
        await equal("alerts set", rule, "--threshold", "99")
        await equal("silences add", "job=x*", "--until", "+1h")
        await equal("silences list")
        await equal("channels add", "hook", "--webhook", "https://example.invalid/hook")
        await equal("channels list")
        await equal("channels test", "hook", codes=(0, 1))
        await equal("channels enable", "hook")
        await equal("channels deliveries")
        # Triggers
        await equal("triggers add", "push", "--job", "hello", "--webhook", "github", "--event", "push")
        await equal("triggers list")
        await equal("triggers get", "push")
        await equal("triggers edit", "push", "--when", "body.ok")
        await equal("triggers pause", "push")
        await equal("triggers resume", "push")
        await equal("triggers rotate", "push")
        await equal("triggers test", "push", "--body", '{"ok": true}', "--event", "push")
        await equal("triggers deliveries", "push")
        await equal("triggers add", "chain", "--job", "other", "--after", "hello", "--on", "failed")
        # Workflows
        file = tmp_path / "flow.yaml"
        file.write_text(WORKFLOW)
        await equal("workflows apply", str(file), "--dry-run")
        await equal("workflows apply", str(file))
        await equal("workflows list")
        await equal("workflows show", "flow")
        await equal("workflows versions", "flow")
        await equal("workflows rollback", "flow", "1")
        await equal("workflows graph", "flow")
        run = (await equal("workflows run", "flow"))["run_id"]
        await equal("runs list")
        await equal("runs show", run)
        await equal("runs graph", run)
        await equal("runs timeline", run, "first")
        await waits_for(program, run, "ask")
        await equal("runs approve", run, "ask")
        await waits_for(program, run, "hold")
        await equal("runs event", run, "go")
        await equal("runs wait", run)
        other = (await equal("workflows run", "flow"))["run_id"]
        await waits_for(program, other, "ask")
        await equal("runs reject", other, "ask")
        await equal("runs wait", other, codes=(10,))
        again = (await equal("runs rerun", other))["run_id"]
        await waits_for(program, again, "ask")
        await equal("runs force-complete", again, "ask", "--reason", "r")
        await waits_for(program, again, "hold")
        await equal("runs skip", again, "hold", "--reason", "r")
        last = (await equal("workflows run", "flow"))["run_id"]
        await equal("runs cancel", last)
        # Backfills
        await equal("backfill", "hello", "--from", "2020-01-01", "--to", "2020-01-03", "--dry-run")
        made = await equal("backfill", "hello", "--from", "2020-01-01", "--to", "2020-01-03", "--yes")
        await equal("backfills list")
        await equal("backfills get", made["backfill_id"])
        await equal("backfills pause", made["backfill_id"], codes=(0, 5))
        await equal("backfills resume", made["backfill_id"], codes=(0, 5))
        await equal("backfills cancel", made["backfill_id"], codes=(0, 5))
        await equal("jobs needs remove", "other", "hello")
    missing = {*leaves()} - program.used - NO_SERVER - NO_ANSWER - OTHER_FORMAT.keys()
    assert not missing, "commands that this test does not run"


async def waits_for(program: Program, run: str, step: str) -> None:
    """Wait until a step of a run waits for a decision or an event."""

    async def waits() -> bool:
        found = await program.run("runs show", run)
        return any(each["name"] == step and each["state"] in ("waiting", "running") for each in found["steps"])

    await until_async(f"{step} waits", waits, within_s=30)


async def test_other_formats_carry_the_same(program: Program, cluster: Cluster) -> None:
    await program.run("add", "formats", "--", "true")
    found = await program.equal("jobs get", "formats")
    assert await program.run("jobs get", "formats", format="jsonl") == found
    assert (await program.run("jobs get", "formats", format="name")) == "formats\n"
    words = [*program._args, "jobs", "get", "formats", "-o", "yaml"]
    result = await asyncio.to_thread(CliRunner().invoke, main, words)
    assert yaml.safe_load(result.stdout) == found
    words = [*program._args, "jobs", "list", "-o", "yaml"]
    result = await asyncio.to_thread(CliRunner().invoke, main, words)
    assert found["name"] in [item["name"] for item in yaml.safe_load(result.stdout)["items"]]
