"""`mainspring db recovery-settings`, `hold` and `resume`: point-in-time recovery, and the hold of firing after it."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

from mainspring.cli.arguments import when
from mainspring.cli.confirm import confirm
from mainspring.cli.output import echo
from mainspring.cli.server_settings import session_url_option
from mainspring.domain.errors import Conflict, Invalid, NotFound
from mainspring.store import holds
from mainspring.store.db import Database
from mainspring.store.definitions import Definitions
from mainspring.store.migrate import require_schema

CANCELLED_AT_ONCE = 1000
REASON = "it may have been executed after the backup"


@click.command("recovery-settings")
@click.option("--to", metavar="TIME", required=True, help="What was committed later is left out.")
@click.option(
    "--archive",
    metavar="DIR",
    required=True,
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="Folder of archived WAL.",
)
def recovery_settings(to: str, archive: Path) -> None:
    """Print settings of PostgreSQL for a recovery to TIME. Append them to postgresql.auto.conf of the copy.

    To undo a change, pass the time that its entry in the audit log has: it is before the commit of the change.
    """
    at = when(to).astimezone(UTC)
    folder = str(archive).replace("%", "%%")
    command = f"cp {shlex.quote(f'{folder}/')}%f %p".replace("'", "''")
    # PostgreSQL does not accept time zone abbreviations here, not even Z.
    echo(f"restore_command = '{command}'")
    echo(f"recovery_target_time = '{at:%Y-%m-%d %H:%M:%S.%f}+00'")
    echo("recovery_target_action = 'promote'")
    echo("now create recovery.signal in the data folder, and start the server", err=True)


@click.command
@session_url_option
@click.option(
    "--recovered-to",
    metavar="TIME",
    help="To what time the database was recovered. Without it, the server says so, unless it was restarted since.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def hold(database_url: str, recovered_to: str | None, yes: bool) -> None:
    """Hold firing after a point-in-time recovery, until `db resume`. `db restore` ends in one.

    Run it before any server connects to the recovered database: it would fire what has been done since.
    """
    at = asyncio.run(_recovered_to(database_url, None if recovered_to is None else when(recovered_to)))
    confirm(f"Hold firing, and end all sessions of workers, since the database is that of {at}?", yes=yes)
    asyncio.run(_hold(database_url, at))
    echo("✔ firing is held. Next: mainspring db resume --gap skip|run|ask")


async def _recovered_to(url: str, given: datetime | None) -> datetime:
    await require_schema(url, as_owner=True)
    async with Database(url, size=1) as database, database.connection() as connection:
        if await holds.open_hold(connection) is not None:
            raise Conflict("firing is held already; end the hold with: mainspring db resume")
        found = given or await holds.recovered_upto(connection)
    if found is None:
        raise Invalid("this server does not know to what time it was recovered: pass --recovered-to TIME")
    return found


async def _hold(url: str, at: datetime) -> None:
    async with Database(url, size=1) as database, database.transaction() as connection:
        await holds.begin_hold(connection, backup_at=at)


@click.command
@session_url_option
@click.option(
    "--gap",
    type=click.Choice(["skip", "run", "ask"]),
    default="ask",
    show_default=True,
    help="What came due between the backup and now: `skip` does not execute it, `run` does, by each job's misfire"
    " policy, `ask` shows it and asks.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def resume(database_url: str, gap: str, yes: bool) -> None:
    """End the hold that a restore or `db hold` began.

    Executions that the backup has as queued, running or due may have been executed since. `skip` cancels them, and
    pauses backfills and triggers that read files or topics. `run` executes them again, under the same ids.
    """
    held, found = asyncio.run(_find_hold(database_url))
    echo(_described(held, found), err=True)
    if gap == "ask":
        if not sys.stdin.isatty():
            raise Invalid("decide what the gap means: --gap skip (do not execute it) or --gap run (execute it)")
        gap = click.prompt("What came due since the backup", type=click.Choice(["skip", "run"]))
    else:
        confirm(f"Resume firing, and {gap} what came due since the backup?", yes=yes)
    done = asyncio.run(_resume(database_url, held, "skip" if gap == "skip" else "run"))
    echo("✔ firing resumes" + (f"; {done.cancelled:,} executions were cancelled" if gap == "skip" else ""))
    if done.backfills or done.triggers:
        echo(
            f"  paused: {done.backfills:,} backfills, {done.triggers:,} triggers of files and topics. Resume each"
            " when you know what it has started since: mainspring backfill resume, mainspring triggers resume"
        )


def _described(held: holds.Hold, found: holds.GapSummary) -> str:
    also = ""
    if found.backfills or found.triggers:
        also = f" {found.backfills:,} backfills and {found.triggers:,} triggers of files and topics are active."
    return (
        f"backup of {held.backup_at}, held since {held.held_at}; fires are decided up to {found.decided_upto}."
        f" {found.executions:,} executions may have been executed since;"
        f" {found.schedules:,} jobs have a schedule.{also}"
    )


async def _find_hold(url: str) -> tuple[holds.Hold, holds.GapSummary]:
    await require_schema(url, as_owner=True)
    async with Database(url, size=1) as database, database.connection() as connection:
        held = await holds.open_hold(connection)
        if held is None:
            raise Conflict(
                "firing is not held; nothing to resume. After a point-in-time recovery: mainspring db hold",
                code="not_held",
            )
        return held, await holds.gap_summary(connection, held_at=held.held_at)


@dataclass
class Skipped:
    """What `--gap skip` has kept from being executed again."""

    cancelled: int = 0
    backfills: int = 0
    triggers: int = 0


async def _resume(url: str, held: holds.Hold, gap: holds.Gap) -> Skipped:
    """Keep what may have been executed from being executed again, then end the hold; can be repeated at any point."""
    by, done = f"db resume ({os.environ.get('USER', 'operator')})", Skipped()
    async with Database(url, size=4) as database:
        if gap == "skip":
            done = await _skip(database, held, by)
        async with database.transaction() as connection:
            if not await holds.end_hold(connection, hold_id=held.hold_id, by=by, gap=gap):
                raise Conflict("another operator has ended the hold meanwhile", code="not_held")
    return done


async def _skip(database: Database, held: holds.Hold, by: str) -> Skipped:
    from mainspring.intake import backfills
    from mainspring.intake.executions import cancel
    from mainspring.intake.submissions import move_submissions
    from mainspring.intake.triggers import definitions as triggers

    done, at = Skipped(), held.held_at
    await move_submissions(database, Definitions(database))  # the executions that they become are cancelled below
    async with database.connection() as connection:
        running = await holds.gap_backfills(connection, held_at=at)
        reading = await holds.gap_triggers(connection, held_at=at)
    for backfill_id, tenant in running:
        done.backfills += await _done(backfills.pause(database, backfill_id, tenant=tenant, by=by))
    for name, tenant in reading:
        done.triggers += await _done(triggers.pause(database, name, REASON, tenant=tenant, by=by))
    while True:
        async with database.connection() as connection:
            found = await holds.gap_executions(connection, held_at=at, limit=CANCELLED_AT_ONCE)
        if not found:
            return done
        before = done.cancelled
        for execution_id, tenant in found:
            done.cancelled += await _done(cancel(database, execution_id, tenant=tenant, by=by, reason=REASON))
        if done.cancelled == before:
            raise Conflict(
                f"{len(found)} executions cannot be cancelled, the first is {found[0][0]}; firing stays held"
            )


async def _done(change: Awaitable[object]) -> int:
    try:
        await change
    except (NotFound, Conflict):
        return 0  # it ended with another one, such as the run that it belongs to
    return 1
