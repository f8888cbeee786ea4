"""`mainspring jobs`: everything about jobs that exist."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from mainspring import wire
from mainspring.cli.add import describe
from mainspring.cli.arguments import until as until_time
from mainspring.cli.arguments import when
from mainspring.cli.connect import connected, gather
from mainspring.cli.needs import needs
from mainspring.cli.output import Output, print_message
from mainspring.cli.queues import show_why
from mainspring.cli.spec import changed, completed, spec_options
from mainspring.cli.tables.jobs import HISTORY, JOBS, LEDGER, VERSIONS, fire_lines, job_details, schedule_text
from mainspring.display.definitions import as_json, merge_patch

if TYPE_CHECKING:
    from mainspring.client import AsyncClient


def limit_option(default: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option("--limit", type=click.IntRange(1), default=default, show_default=True, help="How many.")


detach_option = click.option(
    "--detach", "--force", "detach", is_flag=True, help="Also if others need it: they go on without it."
)


@click.group
def jobs() -> None:
    """List, look at, change, pause and delete jobs. JOB is a name or an id."""


jobs.add_command(needs)


@jobs.command("list")
@click.argument("filter_", nargs=-1, metavar="[FILTER]...")
@click.option("--prefix", metavar="TEXT", help="Only names that begin with this.")
@limit_option(100)
@connected
async def list_jobs(client: AsyncClient, out: Output, filter_: tuple[str, ...], prefix: str | None, limit: int) -> None:
    """List jobs by name, with their next fire and last executions.

    FILTER is words of the name, or fields: state:paused name:night queue:long kind:http label:team=finance.
    """
    if filter_ and prefix:
        raise click.UsageError("give a filter or --prefix; in a filter, name: is a prefix")
    said = " ".join(filter_) or None
    page = await gather(
        lambda count, cursor: client.jobs(limit=count, cursor=cursor, prefix=prefix, filter=said), limit
    )
    out.page(page, JOBS)


@jobs.command
@click.argument("job")
@connected
async def get(client: AsyncClient, out: Output, job: str) -> None:
    """Show one job."""
    out.one(await client.job(job), JOBS, job_details)


@jobs.command
@click.argument("job")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- CMD...]")
@spec_options
@click.option("--unset-env", multiple=True, metavar="K", help="Remove a variable; repeatable.")
@click.option("--no-schedule", is_flag=True, help="From now on only on demand.")
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
    """Change what the options name; all else stays."""
    if not (command or unset_env or no_schedule or any(value not in (None, {}, ()) for value in flags.values())):
        raise click.UsageError(f"say what to change, for example: mainspring jobs edit {job} --every 10s")
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


@jobs.command
@click.argument("job", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--reason", default="", metavar="TEXT", help="Why, for whoever looks at it later.")
@detach_option
@connected
async def delete(client: AsyncClient, out: Output, job: tuple[str, ...], yes: bool, reason: str, detach: bool) -> None:
    """Delete jobs. They fire no more; their history is kept. A job that others need stays, but for --detach."""
    found = [await client.job(ref) for ref in job]
    for each in found:
        print_message(f"delete {each.name} ({schedule_text(each)}): it fires no more, its history is kept")
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("nothing was deleted: without a terminal to ask on, this needs --yes")
    if not yes and not click.confirm("Go on?", err=True):
        raise click.exceptions.Exit(1)
    for each in found:
        await client.delete_job(each.job_id, reason=reason, detach=detach)
        click.echo(each.name if out.format == "name" else f"{each.name} deleted", err=out.format in ("json", "jsonl"))


@jobs.command
@click.argument("job")
@click.option("--reason", default="", metavar="TEXT", help="Why, for whoever looks at it later.")
@click.option("--until", type=until_time, metavar="T|D", help="Resume it by itself then: a time, or 2h from now.")
@connected
async def pause(client: AsyncClient, out: Output, job: str, reason: str, until: datetime | None) -> None:
    """Let a job fire no more until it is resumed. Of a paused job, --until and --reason are set anew."""
    found = await client.pause_job(job, reason, until=until)
    out.one(found, JOBS, lambda found: describe(found, "paused", None))


@jobs.command("force-complete")
@click.argument("job")
@click.option("--reason", required=True, metavar="TEXT", help="Why.")
@connected
async def force_complete(client: AsyncClient, out: Output, job: str, reason: str) -> None:
    """Let the jobs that need this one go as if it had succeeded; what lives of it is ended."""
    out.one(await client.force_complete_job(job, reason), JOBS, lambda found: describe(found, "counts as done", None))


@jobs.command
@click.argument("job")
@click.option("--reason", required=True, metavar="TEXT", help="Why.")
@connected
async def skip(client: AsyncClient, out: Output, job: str, reason: str) -> None:
    """Let the jobs that need this one go without it; they can see that it was not run."""
    out.one(await client.skip_job(job, reason), JOBS, lambda found: describe(found, "skipped", None))


@jobs.command
@click.argument("job")
@connected
async def why(client: AsyncClient, out: Output, job: str) -> None:
    """Say why the job's next execution does not run yet."""
    show_why(out, await client.why_job(job))


@jobs.command
@click.argument("job")
@click.option("--catch-up", is_flag=True, help="Apply the job's misfire policy to what came due during the pause.")
@connected
async def resume(client: AsyncClient, out: Output, job: str, catch_up: bool) -> None:
    """Let a paused job fire again, from its next fire on.

    What came due during the pause is recorded as skipped in its ledger, unless --catch-up makes up for it.
    """
    found = await client.resume_job(job, catch_up=catch_up)
    fires = await client.fires(job, count=3) if found.next_fire_at is not None and out.is_text else None
    out.one(found, JOBS, lambda found: describe(found, "resumed", fires))


@jobs.command("next")
@click.argument("job")
@click.option("-n", "--count", type=click.IntRange(1, 500), default=10, show_default=True, help="How many.")
@click.option("--after", type=when, metavar="T", help="After this time (UTC without an offset), or +10m.")
@connected
async def next_fires(client: AsyncClient, out: Output, job: str, count: int, after: datetime | None) -> None:
    """Show when a job fires next, in local time and UTC."""
    print_fires(out, await client.fires(job, count=count, after=after))


@jobs.command
@click.argument("job")
@limit_option(20)
@connected
async def history(client: AsyncClient, out: Output, job: str, limit: int) -> None:
    """List the executions of a job, newest first, whatever started them.

    Fires, runs by hand and backfills alike. For what became of each due instant of the schedule: jobs ledger.
    """
    out.page(await gather(lambda count, cursor: client.history(job, limit=count, cursor=cursor), limit), HISTORY)


@jobs.command
@click.argument("job")
@limit_option(20)
@connected
async def ledger(client: AsyncClient, out: Output, job: str, limit: int) -> None:
    """Show what became of each due instant of a job's schedule, newest first.

    Also those that did not run, and why. Runs by hand and backfills are not due instants: see jobs history.
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
    """Bring an earlier version of a job back, as a new one."""
    found = await client.rollback(job, version)
    fires = await client.fires(job, count=3) if found.next_fire_at is not None and out.is_text else None
    out.one(found, JOBS, lambda found: describe(found, f"is like version {version} again", fires))


def print_fires(out: Output, fires: wire.Fires) -> None:
    if not out.is_text:
        out.value(fires)
        return
    print_message(f"{fires.description}" if fires.fires else f"{fires.description}: no more fires")
    for line in fire_lines(fires.fires):
        click.echo(line)
    for note in fires.notes:
        print_message(f"note: {note}")
