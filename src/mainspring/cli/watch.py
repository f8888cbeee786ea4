"""`mainspring watch`: raise an alarm from another machine when the whole cluster is silent.

Alerts of a cluster are sent by its leader, so nothing is sent when every server or the database is gone. This program
needs neither: it asks a server over HTTP, and sends webhooks or runs a program on its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import click

from mainspring import __version__
from mainspring.cli.arguments import seconds
from mainspring.cli.options import current, server_options
from mainspring.cli.output import echo, print_message
from mainspring.clock import SystemClock
from mainspring.domain.alarm_policy import Alarm, AlarmPolicy

if TYPE_CHECKING:
    from mainspring.client.discovery import Server

CHECK_TIMEOUT_S = 10.0
SEND_TIMEOUT_S = 30.0
COMMAND_TIMEOUT_S = 60.0
LEAST_INTERVAL_S = 1.0
MAX_BYTES = 4 * 1024 * 1024
SHARD_AGE = "mainspring_shard_heartbeat_age_seconds{"
HELD = "mainspring_firing_held "


@dataclass
class Target:
    """The cluster that is watched, and what counts as silent."""

    server: Server
    shard_silence_s: float

    async def problem(self) -> str | None:
        """Return what is wrong, or None."""
        try:
            return await self._ready() or await self._firing()
        except (OSError, TimeoutError) as error:
            return f"{self.server.url} does not answer: {str(error) or type(error).__name__}"

    async def _ready(self) -> str | None:
        status, body = await fetch("GET", self.server.url, "/readyz", timeout_s=CHECK_TIMEOUT_S)
        if status == 200:
            return None
        return f"{self.server.url}/readyz answers {status}: {body.decode(errors='replace')[:500]}"

    async def _firing(self) -> str | None:
        """Without a token, only the server that answers is known to be ready."""
        if self.server.token is None:
            return None
        headers = {"Authorization": f"Bearer {self.server.token}"}
        status, body = await fetch("GET", self.server.url, "/metrics", headers=headers, timeout_s=CHECK_TIMEOUT_S)
        if status != 200:
            return f"{self.server.url}/metrics answers {status}: the token needs the scope read"
        return metrics_problem(body.decode(errors="replace"), self.shard_silence_s)


def metrics_problem(text: str, shard_silence_s: float) -> str | None:
    """Return why schedules do not fire, from the metrics of a server."""
    silent, longest = 0, 0.0
    for line in text.splitlines():
        if line.startswith(HELD) and float(line.rpartition(" ")[2]) > 0:
            return "firing is held after a restore; decide with: mainspring db resume"
        if line.startswith(SHARD_AGE):
            age_s = float(line.rpartition(" ")[2])
            silent += age_s > shard_silence_s
            longest = max(longest, age_s)
    if not silent:
        return None
    since = "no scheduler has ever owned them" if longest == math.inf else f"the longest for {longest:.0f} s"
    return f"no scheduler serves {silent} shards ({since}): their schedules do not fire"


@dataclass
class Receivers:
    """Where alarms go. Each must accept an alarm before it counts as sent."""

    server_url: str
    webhook: str | None = None
    secret: str | None = None
    command: tuple[str, ...] = ()
    _accepted: set[str] = field(default_factory=set)
    _sending: Alarm | None = None

    async def send(self, alarm: Alarm) -> bool:
        """Send an alarm to the receivers that have not accepted it yet; return whether all have."""
        if self._sending is None or self._sending.state != alarm.state:
            self._sending, self._accepted = alarm, set()
        for name, deliver in (("webhook", self._post), ("command", self._run)):
            if name in self._accepted:
                continue
            if error := await deliver(alarm):
                print_message(f"{name}: {error}; it is repeated at the next check")
            else:
                self._accepted.add(name)
        if len(self._accepted) < 2:
            return False
        self._sending = None
        return True

    async def _post(self, alarm: Alarm) -> str | None:
        if self.webhook is None:
            return None
        from mainspring.alerts.sign import signed
        from mainspring.codec import encode

        at_s = SystemClock().now_ms() / 1000
        body = encode(
            {
                "event": "cluster.silent" if alarm.state == "firing" else "cluster.recovered",
                "state": alarm.state,
                "server": self.server_url,
                "reason": alarm.reason,
                "since": instant(alarm.since_s),
                "at": instant(at_s),
            }
        )
        headers = {"Content-Type": "application/json"}
        if self.secret is not None:
            headers |= signed(self.secret, event_id=f"watch_{uuid4().hex}", at_s=int(at_s), body=body)
        try:
            status, _ = await fetch("POST", self.webhook, body=body, headers=headers, timeout_s=SEND_TIMEOUT_S)
        except (OSError, TimeoutError) as error:
            return f"not delivered: {str(error) or type(error).__name__}"
        return None if 200 <= status < 300 else f"the receiver answers {status}"

    async def _run(self, alarm: Alarm) -> str | None:
        if not self.command:
            return None
        env = {
            **os.environ,
            "MAINSPRING_WATCH_STATE": alarm.state,
            "MAINSPRING_WATCH_REASON": alarm.reason,
            "MAINSPRING_WATCH_SERVER": self.server_url,
        }
        try:
            process = await asyncio.create_subprocess_exec(*self.command, env=env, stdin=asyncio.subprocess.DEVNULL)
        except OSError as error:
            return f"cannot start {self.command[0]}: {error.strerror}"
        try:
            code = await asyncio.wait_for(process.wait(), COMMAND_TIMEOUT_S)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            if not isinstance(error, TimeoutError):
                raise
            return f"{self.command[0]} did not end within {COMMAND_TIMEOUT_S:g} s"
        return None if code == 0 else f"{self.command[0]} exited with {code}"


async def fetch(
    method: str,
    url: str,
    path: str = "",
    *,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
    timeout_s: float,
) -> tuple[int, bytes]:
    """Send one request over a connection of its own: an old one may hide that the server is gone."""
    from mainspring.http_client import HttpClient, HttpError
    from mainspring.http_client.request import split_url
    from mainspring.http_client.route import tls_for

    origin, parts = split_url(url)
    root = f"{origin.scheme}://{origin.host}"
    path = f"{parts.path}{path}" + (f"?{parts.query}" if parts.query else "")
    client = HttpClient(root, {"User-Agent": f"mainspring-watch/{__version__}"}, tls=tls_for(url), connect_s=timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            answer = await client.request(method, path or "/", body, headers=headers, max_bytes=MAX_BYTES)
    except HttpError as error:
        raise OSError(str(error)) from error
    finally:
        client.close()
    return answer.status, answer.body


@click.command
@click.option("--interval", type=seconds, default="15s", show_default=True, metavar="DURATION", help="Between checks.")
@click.option(
    "--after",
    type=seconds,
    default="1m",
    show_default=True,
    metavar="DURATION",
    help="How long checks must fail before the alarm is raised.",
)
@click.option(
    "--repeat",
    type=seconds,
    default="1h",
    show_default=True,
    metavar="DURATION",
    help="How often the alarm is repeated while checks fail.",
)
@click.option(
    "--shard-silence",
    type=seconds,
    default="30s",
    show_default=True,
    metavar="DURATION",
    help="How long a shard may have no scheduler.",
)
@click.option("--webhook", metavar="URL", help="Send alarms to this URL, as JSON.")
@click.option(
    "--webhook-secret-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Sign alarms with the secret in this file (Standard Webhooks).",
)
@click.option("--ping", metavar="URL", help="Request this URL after every successful check.")
@click.option("--once", is_flag=True, help="Check once: exit with 0 if the cluster works, else with 1.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- CMD...]")
@server_options(hidden=True)
def watch(
    interval: float,
    after: float,
    repeat: float,
    shard_silence: float,
    webhook: str | None,
    webhook_secret_file: Path | None,
    ping: str | None,
    once: bool,
    command: tuple[str, ...],
) -> None:
    """Raise an alarm when the whole cluster is silent. Run it on another machine than the cluster.

    A check succeeds if a server is ready and, with a token of the scope read, a scheduler serves every shard. Alarms go
    to a webhook or to a program, which finds MAINSPRING_WATCH_STATE (firing or resolved), MAINSPRING_WATCH_REASON and
    MAINSPRING_WATCH_SERVER in its environment. --ping is for an outside monitor that raises an alarm when pings stay
    away, also those of this program.

    \b
    Examples:
      mainspring watch --webhook https://hooks.example.org/oncall --webhook-secret-file /etc/mainspring/watch
      mainspring watch --ping https://monitor.example.org/ping/scheduler
      mainspring watch -- /usr/local/bin/page-oncall
    """
    from mainspring.cli.private_file import read_private
    from mainspring.client.discovery import discover
    from mainspring.http_client.request import split_url

    if interval < LEAST_INTERVAL_S:
        raise click.BadParameter(f"use {LEAST_INTERVAL_S:g}s or more", param_hint="--interval")
    options = current()
    server = discover(options.url, options.token)
    for url in filter(None, (webhook, ping)):
        split_url(url)
    secret = None if webhook_secret_file is None else read_private(webhook_secret_file, "webhook secret").strip()
    target = Target(server, shard_silence)
    if once:
        if problem := asyncio.run(target.problem()):
            raise click.ClickException(problem)
        echo(f"{server.url} works")
        return
    receivers = Receivers(server.url, webhook, secret, command)
    asyncio.run(_until_stopped(_watch(target, receivers, AlarmPolicy(after_s=after, repeat_s=repeat), interval, ping)))


async def _until_stopped(work: Coroutine[None, None, None]) -> None:
    """Run until SIGTERM or SIGINT."""
    task = asyncio.create_task(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def _watch(
    target: Target, receivers: Receivers, policy: AlarmPolicy, interval_s: float, ping: str | None
) -> None:
    clock = SystemClock()
    echo(f"watching {target.server.url} every {interval_s:g} s")
    before: str | None = None
    while True:
        begun = clock.monotonic()
        problem = await target.problem()
        now_s = clock.now_ms() / 1000
        if problem != before:
            echo(f"{instant(now_s)} {problem or 'ok'}")
            before = problem
        alarm = policy.due(problem, now_s)
        if alarm is not None and await receivers.send(alarm):
            policy.sent(alarm, now_s)
            echo(f"{instant(now_s)} alarm {alarm.state}")
        if problem is None and ping is not None:
            await _ping(ping)
        await asyncio.sleep(max(0.0, interval_s - (clock.monotonic() - begun)))


async def _ping(url: str) -> None:
    try:
        status, _ = await fetch("GET", url, timeout_s=SEND_TIMEOUT_S)
    except (OSError, TimeoutError) as error:
        print_message(f"ping: {str(error) or type(error).__name__}")
        return
    if not 200 <= status < 300:
        print_message(f"ping: the monitor answers {status}")


def instant(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds")
