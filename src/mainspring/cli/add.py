"""`mainspring add`: a job that runs a command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mainspring import wire
from mainspring.cli.connect import connected
from mainspring.cli.output import Output, print_message
from mainspring.cli.spec import changed, completed, spec_options
from mainspring.cli.tables.jobs import JOBS, fire_lines, schedule_text
from mainspring.display.definitions import as_json, merge_patch
from mainspring.display.times import local
from mainspring.domain.errors import NotFound

if TYPE_CHECKING:
    from mainspring.client import AsyncClient


@click.command
@click.argument("name")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- CMD...")
@spec_options
@click.option("--paused", is_flag=True, help="Do not fire before it is resumed.")
@click.option("--replace", is_flag=True, help="If the job exists, make it like this.")
@connected
async def add(
    client: AsyncClient,
    out: Output,
    /,
    name: str,
    command: tuple[str, ...],
    paused: bool,
    replace: bool,
    **flags: Any,
) -> None:
    """Add a job that runs a command, on a schedule or on demand.

    \b
    mainspring add hello --every 5s -- echo hi
    mainspring add report --cron '0 2 * * *' --tz Europe/Berlin --retries 5 -- ./report.sh
    mainspring add cleanup -- rm -rf /var/tmp/cache        (runs when asked: mainspring run cleanup)
    """
    if not command:
        raise click.UsageError(f"say what to run, for example: mainspring add {name} --every 5s -- echo hi")
    spec = changed({"name": name, **({"paused": True} if paused else {})}, flags, command)
    job, verb = await _replace(client, spec) if replace else (await client.create_job(spec), "added")
    fires = await client.fires(name, count=3) if job.next_fire_at is not None and out.is_text else None
    out.one(job, JOBS, lambda job: describe(job, verb, fires))
    for note in fires.notes if fires else ():
        print_message(f"note: {note}")
    for warning in job.warnings:
        print_message(f"warning: {warning}")


async def _replace(client: AsyncClient, spec: dict[str, Any]) -> tuple[wire.Job, str]:
    """The job made like `spec`, except for what `add` has no say in."""
    try:
        found = await client.job(spec["name"])
    except NotFound:
        return await client.create_job(spec), "added"
    old = as_json(found.spec)
    kept: dict[str, Any] = {name: old[name] for name in ("paused", "metadata") if name in old}
    patch = merge_patch(old, completed({**kept, **spec}))
    return (await client.patch_job(found.job_id, patch), "changed") if patch else (found, "unchanged")


def describe(job: wire.Job, verb: str, fires: wire.Fires | None) -> str:
    """What became of the job, and when it fires next."""
    lines = [f"{job.name} {verb}: {schedule_text(job)}"]
    if fires is not None:
        lines += fire_lines(fires.fires or filter(None, [job.next_fire_at]), indent="  next  ")
    if job.state == "paused":
        until = f" until {local(job.paused_until)}" if job.paused_until is not None else ""
        lines.append(f"  paused{until}; to let it fire: mainspring jobs resume {job.name}")
    elif job.spec.schedule is None:
        lines.append(f"  to run it: mainspring run {job.name} --follow")
    return "\n".join(lines)
