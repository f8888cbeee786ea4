"""`mainspring add`: create a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mainspring import wire
from mainspring.cli.connect import connected
from mainspring.cli.output import Output, print_message
from mainspring.cli.spec import changed, completed, names_a_task
from mainspring.cli.spec_options import SpecCommand, spec_options
from mainspring.cli.tables.jobs import JOBS, fire_lines, schedule_text
from mainspring.display.definitions import as_json, merge_patch
from mainspring.display.times import local
from mainspring.domain.errors import NotFound

if TYPE_CHECKING:
    from mainspring.client import AsyncClient


@click.command(cls=SpecCommand)
@click.argument("name")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- CMD...")
@spec_options
@click.option("--paused", is_flag=True, help="Create it paused.")
@click.option("--replace", is_flag=True, help="Replace the definition if the job exists.")
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
    """Add a job: a command, a URL, a container or a Python function, on a schedule or on demand.

    \b
    Examples:
      mainspring add hello --every 5s -- echo hi
      mainspring add report --cron '0 2 * * *' --tz Europe/Berlin -- ./report.sh
      mainspring add cleanup -- rm -rf /var/tmp/cache       (runs on demand)
      mainspring add ping --every 1m --http https://example.com/health
      mainspring add etl --param region=eu --container etl:3 -- load
      mainspring add pay --function shop.jobs:pay --arg currency=EUR
    """
    if not command and not names_a_task(flags):
        raise click.UsageError(
            f"Missing command after --, or --http, --container or --function. "
            f"Example: mainspring add {name} --every 5s -- echo hi"
        )
    spec = changed({"name": name, **({"paused": True} if paused else {})}, flags, command)
    job, verb = await _replace(client, spec) if replace else (await client.create_job(spec), "added")
    fires = await client.fires(name, count=3) if job.next_fire_at is not None and out.is_text else None
    out.one(job, JOBS, lambda job: describe(job, verb, fires))
    for note in fires.notes if fires else ():
        print_message(f"note: {note}")
    print_warnings(job)


def print_warnings(job: wire.Job) -> None:
    for warning in job.warnings:
        print_message(f"warning: {warning}")


async def _replace(client: AsyncClient, spec: dict[str, Any]) -> tuple[wire.Job, str]:
    """Make the job like `spec`, except for the fields that `add` does not set."""
    try:
        found = await client.job(spec["name"])
    except NotFound:
        return await client.create_job(spec), "added"
    old = as_json(found.spec)
    kept: dict[str, Any] = {name: old[name] for name in ("paused", "metadata") if name in old}
    patch = merge_patch(old, completed({**kept, **spec}))
    return (await client.patch_job(found.job_id, patch), "changed") if patch else (found, "unchanged")


def describe(job: wire.Job, verb: str, fires: wire.Fires | None) -> str:
    """The change that was made, and the next fires."""
    lines = [f"{job.name} {verb}: {schedule_text(job)}"]
    if fires is not None:
        lines += fire_lines(fires.fires or filter(None, [job.next_fire_at]), fires.timezone, indent="  next  ")
    if job.state == "paused":
        until = f" until {local(job.paused_until)}" if job.paused_until is not None else ""
        lines.append(f"  paused{until}; resume it with: mainspring jobs resume {job.name}")
    elif job.spec.schedule is None:
        lines.append(f"  run it with: mainspring run {job.name} --follow")
    return "\n".join(lines)
