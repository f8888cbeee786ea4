"""`mainspring run`: trigger a job, and maybe watch it to its end."""

from __future__ import annotations

import asyncio
import math
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mainspring import wire
from mainspring.cli.arguments import seconds, when
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
    metavar="K=V",
    help="A parameter; the value is JSON if it reads as such, else text. Repeatable.",
)


@click.command
@click.argument("job")
@params_option
@click.option("--at", type=when, metavar="T", help="Not now but at a time (UTC without an offset), or +10m.")
@click.option("--fire-at", type=when, metavar="T", help="The nominal time that templates see.  [when it is due]")
@click.option("--key", metavar="K", help="The same key gives the same execution, for a day.")
@click.option("--wait", is_flag=True, help="Wait for the end; the exit code tells how it ended.")
@click.option("--follow", is_flag=True, help="Wait, and show the output meanwhile.")
@click.option("--timeout", type=seconds, default=math.inf, metavar="D", help="Wait no longer than this (exit code 8).")
@click.option("--reason", default="", help="Why, for the audit.")
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
    """Run JOB now, or at a given time, also while it is paused. Its schedule goes on as before.

    With --wait or --follow the exit code is 0 if it succeeded, 10 if it failed, 11 if it was cancelled, 12 if
    it timed out.
    """
    if follow and not out.is_text:
        raise click.UsageError("--follow prints the output of the job; for -o use --wait")
    execution = await client.trigger(job, wire.RunNow(at=at, fire_at=fire_at, key=key, params=params, reason=reason))
    if not wait and not follow:
        out.one(execution, EXECUTIONS, lambda e: f"{e.execution_id}  {e.job}  {state_text(e.state)}")
        return
    try:
        if follow:
            print_message(f"execution {execution.execution_id}")
        final = await (watch if follow else _wait)(client, execution, timeout)
    except asyncio.CancelledError:
        print_message(f"it goes on; to cancel it: mainspring executions cancel {execution.execution_id}")
        raise
    if follow:
        print_message(feed_line(final, color=has_color(sys.stderr)))
    else:
        out.one(final, EXECUTIONS, lambda e: feed_line(e, color=has_color(sys.stdout)))
    raise click.exceptions.Exit(state_code(final.state))


async def _wait(client: AsyncClient, execution: wire.Execution, timeout_s: float) -> wire.Execution:
    return await client.wait(execution.execution_id, timeout_s=timeout_s)


async def watch(client: AsyncClient, execution: wire.Execution, timeout_s: float) -> wire.Execution:
    """Prints the output of an execution until its end, and gives it as it ended."""
    from mainspring.client import WaitTimedOut

    ref = execution.execution_id
    try:
        async with asyncio.timeout(None if math.isinf(timeout_s) else timeout_s):
            await print_output(client, str(ref))
            return await client.wait(ref)
    except TimeoutError:
        raise WaitTimedOut(await client.execution(ref)) from None


async def print_output(client: AsyncClient, ref: str) -> None:
    """The output of an execution as it comes, each stream to its own, and how far it is."""
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
    """Writes chunks of output through, and says where another attempt begins."""

    def __init__(self) -> None:
        self._attempt: int | None = None

    def write(self, chunk: wire.LogChunk) -> None:
        if self._attempt not in (None, chunk.attempt):
            print_message(f"— attempt {chunk.attempt} —")
        self._attempt = chunk.attempt
        click.echo(chunk.text, nl=False, err=chunk.stream != "stdout")
