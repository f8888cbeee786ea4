"""`mainspring run`: trigger a job, and optionally follow it."""

from __future__ import annotations

import asyncio
import math
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mainspring import wire
from mainspring.cli.arguments import when
from mainspring.cli.command_options import reason_option, timeout_option
from mainspring.cli.connect import connected
from mainspring.cli.failure import state_code
from mainspring.cli.feed import feed_line
from mainspring.cli.output import Output, has_color, print_message
from mainspring.cli.progress import ProgressLine
from mainspring.cli.tables.executions import EXECUTIONS, state_text

if TYPE_CHECKING:
    from mainspring.client import AsyncClient


def _params(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", ctx, param)
        try:
            found[name] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            found[name] = value
    return found or None


params_option = click.option(
    "-p",
    "--param",
    "params",
    multiple=True,
    callback=_params,
    metavar="KEY=VALUE",
    help="Parameter; the value is JSON if it parses as JSON, otherwise text. Repeatable.",
)


@click.command
@click.argument("job")
@params_option
@click.option("--at", type=when, metavar="TIME", help="Start time (UTC without an offset), or +10m.  [default: now]")
@click.option(
    "--fire-at", type=when, metavar="TIME", help="Nominal fire time, for templates.  [default: the start time]"
)
@click.option("--key", metavar="KEY", help="Idempotency key; for a day the same key returns the same execution.")
@click.option("--wait", is_flag=True, help="Wait until it ends; the exit code is its outcome.")
@click.option("--follow", is_flag=True, help="Wait, and stream its log and progress.")
@timeout_option
@reason_option
@connected
async def run(
    client: AsyncClient,
    out: Output,
    job: str,
    params: dict[str, Any] | None,
    at: datetime | None,
    fire_at: datetime | None,
    key: str | None,
    wait: bool,
    follow: bool,
    timeout: float,
    reason: str,
) -> None:
    """Run a job now or at a given time, even if it is paused. Its schedule is not affected.

    \b
    Exit code with --wait or --follow: 0 succeeded, 10 failed, 11 cancelled,
    12 timed out.
    """
    if follow and not out.is_text:
        raise click.UsageError("--follow prints the log of the job. With -o json, jsonl or name use --wait.")
    execution = await client.trigger(job, wire.RunNow(at=at, fire_at=fire_at, key=key, params=params, reason=reason))
    if not wait and not follow:
        out.one(execution, EXECUTIONS, lambda e: f"{e.execution_id}  {e.job}  {state_text(e.state)}")
        return
    try:
        if follow:
            print_message(f"execution {execution.execution_id}")
        final = await (watch if follow else _wait)(client, execution, timeout)
    except asyncio.CancelledError:
        print_message(f"the execution continues; cancel it with: mainspring executions cancel {execution.execution_id}")
        raise
    if follow:
        print_message(feed_line(final, color=has_color(sys.stderr)))
    else:
        out.one(final, EXECUTIONS, lambda e: feed_line(e, color=has_color(sys.stdout)))
    raise click.exceptions.Exit(state_code(final.state))


async def _wait(client: AsyncClient, execution: wire.Execution, timeout_s: float) -> wire.Execution:
    return await client.wait(execution.execution_id, timeout_s=timeout_s)


async def watch(client: AsyncClient, execution: wire.Execution, timeout_s: float) -> wire.Execution:
    """Print the log of an execution until it ends, and return its final state."""
    from mainspring.client import WaitTimedOut

    ref = execution.execution_id
    try:
        async with asyncio.timeout(None if math.isinf(timeout_s) else timeout_s):
            await print_output(client, str(ref))
            return await client.wait(ref)
    except TimeoutError:
        raise WaitTimedOut(await client.execution(ref)) from None


async def print_output(client: AsyncClient, ref: str) -> None:
    """Stream the log of an execution to stdout and stderr, with its progress."""
    printer, line = LogPrinter(), ProgressLine()
    try:
        async for news in client.follow(ref):
            if isinstance(news, wire.Progress):
                line.show(news)
            else:
                line.hide()
                printer.write(news)
    finally:
        line.hide()


class LogPrinter:
    """Writes log chunks, with a line where another attempt begins."""

    def __init__(self) -> None:
        self._attempt: int | None = None

    def write(self, chunk: wire.LogChunk) -> None:
        if self._attempt not in (None, chunk.attempt):
            print_message(f"— attempt {chunk.attempt} —")
        self._attempt = chunk.attempt
        click.echo(chunk.text, nl=False, err=chunk.stream != "stdout")
