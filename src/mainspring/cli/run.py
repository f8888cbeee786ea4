"""`mainspring run`: trigger a job, and optionally follow it."""

from __future__ import annotations

import asyncio
import math
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from mainspring import wire
from mainspring.cli.arguments import when
from mainspring.cli.command_options import reason_option, timeout_option
from mainspring.cli.connect import connected
from mainspring.cli.failure import state_code
from mainspring.cli.feed import SHORT_ID, feed_line
from mainspring.cli.output import Output, echo, has_color, print_message
from mainspring.cli.progress import ProgressLine
from mainspring.cli.spec_options import value_of
from mainspring.cli.tables.executions import EXECUTIONS, state_text
from mainspring.display.terminal import PrintableStream
from mainspring.display.text import clean
from mainspring.display.times import local_exact, now, span
from mainspring.domain.errors import Forbidden, NotFound

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

MAX_CAUSE_LINES = 20


def _params(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", ctx, param)
        found[name] = value_of(value)
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
        await print_cause(client, final)
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


async def print_output(client: AsyncClient, ref: str, *, raw: bool = False, timestamps: bool = False) -> None:
    """Stream the log of an execution to stdout and stderr, with its progress."""
    printer, line = LogPrinter(raw=raw, timestamps=timestamps), ProgressLine()
    try:
        async for news in client.follow(ref):
            if isinstance(news, wire.Progress):
                line.show(news)
            elif isinstance(news, wire.Retry):
                line.hide()
                printer.end()
                print_message(retry_line(news, await _max_retries(client, ref), now()))
            else:
                line.hide()
                printer.write(news)
    finally:
        line.hide()
        printer.end()


async def _max_retries(client: AsyncClient, ref: str) -> int | None:
    """How often the job is retried; None for a step, whose policy is in its workflow."""
    execution = await client.execution(ref)
    return None if execution.step is not None else (await client.job(execution.job_id)).spec.retries.max


def retry_line(retry: wire.Retry, most: int | None, at: datetime) -> str:
    """`attempt 1 failed: exit code 3; retry 1 of 3 in 12 s`."""
    cause = (retry.error or "").strip().partition("\n")[0]
    if not cause and retry.exit_code is not None:
        cause = f"exit code {retry.exit_code}"
    bound = f" of {most}" if most is not None and retry.attempt <= most else ""
    wait_s = max(0, round((retry.due_at - at).total_seconds()))
    outcome = retry.outcome.replace("_", " ") + (f": {clean(cause)}" if cause else "")
    return f"attempt {retry.attempt} {outcome}; retry {retry.attempt}{bound} in {span(wait_s * 1000)}"


async def print_cause(client: AsyncClient, final: wire.Execution) -> None:
    """Print why an execution failed for good, as its dead letter says, and how to go on."""
    if final.state not in ("failed", "timed_out", "lost"):
        return
    cause, known = final.error or final.reason or "", False
    try:
        letter = await client.dead_letter(final.execution_id)
        cause, known = letter.error or letter.reason or cause, True
    except (NotFound, Forbidden):  # a canary, or a token that may not see dead letters
        pass
    for line in cause.strip().splitlines()[:MAX_CAUSE_LINES]:
        print_message(f"  {clean(line)}")
    if known:
        short = str(final.execution_id)[:SHORT_ID]
        print_message(f"  see it with: mainspring dead-letters get {short}")


class LogPrinter:
    """Writes log chunks, with a line where another attempt begins.

    Programs write to their log whatever they like, and so do those whose input they repeat. Only colours reach the
    terminal, unless `raw`. With `timestamps`, each line begins with the time at which the server received it.
    """

    def __init__(self, *, raw: bool = False, timestamps: bool = False) -> None:
        self._raw = raw
        self._timestamps = timestamps
        self._line_starts = {False: True, True: True}
        self._attempt: int | None = None
        self._streams = {False: PrintableStream(), True: PrintableStream()}

    def write(self, chunk: wire.LogChunk) -> None:
        if self._attempt not in (None, chunk.attempt):
            self.end()
            print_message(f"— attempt {chunk.attempt} —")
        self._attempt = chunk.attempt
        err = chunk.stream != "stdout"
        if self._raw:
            stream = sys.stderr if err else sys.stdout
            stream.flush()
            stream.buffer.write(chunk.text.encode("utf-8", "surrogatepass"))
            stream.buffer.flush()
        else:
            text = self._streams[err].add(chunk.text)
            echo(self._stamped(text, err, chunk.received_at) if self._timestamps else text, nl=False, err=err)

    def _stamped(self, text: str, err: bool, at: datetime | None) -> str:
        *whole, last = text.split("\n")
        stamp = f"{local_exact(at)}  "
        lines = []
        for line, ending in (*((line, "\n") for line in whole), (last, "")):
            if line or ending:
                lines.append((stamp if self._line_starts[err] else "") + line + ending)
                self._line_starts[err] = bool(ending)
        return "".join(lines)

    def end(self) -> None:
        """Print what was held back, and switch colours off."""
        for err, stream in self._streams.items():
            self._line_starts[err] = True
            if rest := stream.end():
                echo(rest, nl=False, err=err)
