"""`mainspring jobs`: manage jobs."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from mainspring import wire
from mainspring.cli.add import describe, print_warnings
from mainspring.cli.arguments import until as until_time
from mainspring.cli.arguments import when
from mainspring.cli.command_options import (
    count_option,
    detach_option,
    limit_option,
    reason_option,
    required_reason_option,
    yes_option,
)
from mainspring.cli.confirm import confirm
from mainspring.cli.connect import connected, gather
from mainspring.cli.group import Group
from mainspring.cli.needs import needs
from mainspring.cli.output import Output, echo, print_message
from mainspring.cli.queues import show_why
from mainspring.cli.spec import changed, completed
from mainspring.cli.spec_options import SpecCommand, spec_options
from mainspring.cli.tables.jobs import (
    HISTORY,
    JOBS,
    LEDGER,
    VERSIONS,
    fire_lines,
    job_details,
    planned_start_line,
    schedule_text,
    size_details,
    stats_details,
)
from mainspring.display.definitions import as_json, merge_patch
from mainspring.domain.filter import JOB_STATES, spell

if TYPE_CHECKING:
    from mainspring.client import AsyncClient


@click.group(cls=Group)
def jobs() -> None:
    """List, edit, pause, resume and delete jobs. JOB is a name or an id."""


jobs.add_command(needs)


@jobs.command("list")
@click.argument("filter_", nargs=-1, metavar="[FILTER]...")
@click.option("--prefix", metavar="TEXT", help="Prefix of the names.")
@click.option("--state", multiple=True, type=click.Choice(JOB_STATES), help="State. Repeatable.")
@limit_option(100)
@connected
async def list_jobs(
    client: AsyncClient,
    out: Output,
    filter_: tuple[str, ...],
    prefix: str | None,
    state: tuple[str, ...],
    limit: int,
) -> None:
    """List jobs with their next fire and last executions.

    FILTER is words of the name, or fields: state:paused name:night queue:long kind:http label:team=finance
    """
    if filter_ and prefix:
        raise click.UsageError("Use a filter or --prefix, not both. In a filter, name: matches a prefix.")
    if state:
        filter_ = (*filter_, spell(name=prefix or "", state=state))
        prefix = None
    query = " ".join(filter_) or None
    page = await gather(
        lambda count, cursor: client.jobs(limit=count, cursor=cursor, prefix=prefix, filter=query), limit
    )
    out.page(page, JOBS)


@jobs.command
@click.argument("job")
@connected
async def get(client: AsyncClient, out: Output, job: str) -> None:
    """Show a job."""
    out.one(await client.job(job), JOBS, job_details)


@jobs.command(cls=SpecCommand)
@click.argument("job")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- CMD...]")
@spec_options
@click.option("--unset-env", multiple=True, metavar="KEY", help="Environment variable to remove. Repeatable.")
@click.option("--no-schedule", is_flag=True, help="Remove the schedule.")
@connected
async def edit(
    client: AsyncClient,
    out: Output,
    /,
    job: str,
    command: tuple[str, ...],
    unset_env: tuple[str, ...],
    no_schedule: bool,
    **flags: Any,
) -> None:
    """Edit a job. Options left out stay as they are."""
    if not (command or unset_env or no_schedule or any(value not in (None, {}, ()) for value in flags.values())):
        raise click.UsageError(f"Nothing to change. Example: mainspring jobs edit {job} --every 10s")
    old = as_json((await client.job(job)).spec)
    wanted = changed(old, flags, command)
    if no_schedule:
        wanted["schedule"] = None
    if unset_env:
        env = wanted["task"].get("env", {})
        wanted["task"]["env"] = {name: value for name, value in env.items() if name not in unset_env}
    patch = merge_patch(old, completed(wanted))
    found = await client.patch_job(job, patch) if patch else await client.job(job)
    fires = await client.fires(job, count=3) if found.next_fire_at is not None and out.is_text else None
    out.one(found, JOBS, lambda found: describe(found, "changed" if patch else "unchanged", fires))
    print_warnings(found)


@jobs.command
@click.argument("job", nargs=-1, required=True)
@yes_option
@reason_option
@detach_option
@connected
async def delete(client: AsyncClient, out: Output, job: tuple[str, ...], yes: bool, reason: str, detach: bool) -> None:
    """Delete jobs. Their history is kept. A job that others need is deleted only with --detach."""
    found = [await client.job(ref) for ref in job]
    confirm("\n".join(f"delete {each.name}: {schedule_text(each)}" for each in found), yes=yes)
    for each in found:
        await client.delete_job(each.job_id, reason=reason, detach=detach)
        out.deleted(each.name)


@jobs.command
@click.argument("job")
@reason_option
@click.option("--until", type=until_time, metavar="TIME|DURATION", help="When to resume it automatically, such as 2h.")
@connected
async def pause(client: AsyncClient, out: Output, job: str, reason: str, until: datetime | None) -> None:
    """Pause a job. For a paused job, replace --until and --reason."""
    found = await client.pause_job(job, reason, until=until)
    out.one(found, JOBS, lambda found: describe(found, "paused", None))


@jobs.command("force-complete")
@click.argument("job")
@required_reason_option
@connected
async def force_complete(client: AsyncClient, out: Output, job: str, reason: str) -> None:
    """Mark a job as succeeded for its dependents. Its active executions are cancelled."""
    out.one(
        await client.force_complete_job(job, reason), JOBS, lambda found: describe(found, "marked as succeeded", None)
    )


@jobs.command
@click.argument("job")
@required_reason_option
@connected
async def skip(client: AsyncClient, out: Output, job: str, reason: str) -> None:
    """Skip a job for its dependents. They see it as skipped."""
    out.one(await client.skip_job(job, reason), JOBS, lambda found: describe(found, "skipped", None))


@jobs.command
@click.argument("job")
@connected
async def why(client: AsyncClient, out: Output, job: str) -> None:
    """Explain why the next execution of a job has not started."""
    show_why(out, await client.why_job(job))


@jobs.command
@click.argument("job")
@click.option("--catch-up", is_flag=True, help="Apply the misfire policy to fires during the pause.")
@connected
async def resume(client: AsyncClient, out: Output, job: str, catch_up: bool) -> None:
    """Resume a paused job.

    Fires during the pause are recorded as skipped in the ledger, unless --catch-up is given.
    """
    found = await client.resume_job(job, catch_up=catch_up)
    fires = await client.fires(job, count=3) if found.next_fire_at is not None and out.is_text else None
    out.one(found, JOBS, lambda found: describe(found, "resumed", fires))


@jobs.command("next")
@click.argument("job")
@count_option(10, 500, "Number of fires.")
@click.option(
    "--after", type=when, metavar="TIME", help="Start of the list (UTC without an offset), or +10m.  [default: now]"
)
@connected
async def next_fires(client: AsyncClient, out: Output, job: str, count: int, after: datetime | None) -> None:
    """List the next fires of a job in local time and UTC."""
    print_fires(out, await client.fires(job, count=count, after=after))


@jobs.command
@click.argument("job")
@limit_option(20)
@connected
async def history(client: AsyncClient, out: Output, job: str, limit: int) -> None:
    """List the executions of a job, newest first.

    Includes scheduled fires, manual runs and backfills. For the outcome of each fire of the schedule, including
    skipped ones, see: mainspring jobs ledger
    """
    out.page(await gather(lambda count, cursor: client.history(job, limit=count, cursor=cursor), limit), HISTORY)


@jobs.command
@click.argument("job")
@click.option("--since", default="24h", show_default=True, metavar="DURATION", help="How far to look back, such as 7d.")
@connected
async def stats(client: AsyncClient, out: Output, job: str, since: str) -> None:
    """Show how often a job succeeded and failed, and how long it took."""
    found = await client.stats(job, since=since)
    if out.is_text:
        echo(stats_details(found))
    else:
        out.value(found)


@jobs.command
@click.argument("job")
@connected
async def suggest(client: AsyncClient, out: Output, job: str) -> None:
    """Suggest memory, CPU and timeout of a job from what its attempts have used."""
    found = await client.job_size(job)
    if out.is_text:
        echo(size_details(found))
    else:
        out.value(found)


@jobs.command
@click.argument("job")
@limit_option(20)
@connected
async def ledger(client: AsyncClient, out: Output, job: str, limit: int) -> None:
    """List the outcome of each scheduled fire and of each start by a trigger, newest first.

    Includes skipped fires and the reason. For manual runs and backfills, see: mainspring jobs history
    """
    out.page(await gather(lambda count, cursor: client.ledger(job, limit=count, cursor=cursor), limit), LEDGER)


@jobs.command
@click.argument("job")
@limit_option(20)
@connected
async def versions(client: AsyncClient, out: Output, job: str, limit: int) -> None:
    """List the versions of a job, newest first."""
    out.page(await gather(lambda count, cursor: client.versions(job, limit=count, cursor=cursor), limit), VERSIONS)


@jobs.command
@click.argument("job")
@click.argument("version", type=click.IntRange(1))
@connected
async def rollback(client: AsyncClient, out: Output, job: str, version: int) -> None:
    """Restore an earlier version of a job, as a new version."""
    found = await client.rollback(job, version)
    fires = await client.fires(job, count=3) if found.next_fire_at is not None and out.is_text else None
    out.one(found, JOBS, lambda found: describe(found, f"restored to version {version}", fires))
    print_warnings(found)


def print_fires(out: Output, fires: wire.Fires) -> None:
    if not out.is_text:
        out.value(fires)
        return
    print_message(f"{fires.description}" if fires.fires else f"{fires.description}: no more fires")
    for line in fire_lines(fires.fires, fires.timezone):
        echo(line)
    for start in fires.starts:
        echo(planned_start_line(start))
    for note in fires.notes:
        print_message(f"note: {note}")
