"""`mainspring dead-letters`: executions that failed permanently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from mainspring import wire
from mainspring.cli.command_options import limit_option, required_reason_option, yes_option
from mainspring.cli.confirm import confirm
from mainspring.cli.connect import connected, gather
from mainspring.cli.failure_context import failure_lines
from mainspring.cli.feed import SHORT_ID
from mainspring.cli.group import Group
from mainspring.cli.output import Output, echo
from mainspring.cli.run import params_option
from mainspring.cli.tables.dead_letters import DEAD_LETTERS, GROUPS, dead_letter_details
from mainspring.display.times import local
from mainspring.domain.dead_letter import DEAD_LETTER_STATES, DeadLetterState

if TYPE_CHECKING:
    from mainspring.client import AsyncClient


@click.group("dead-letters", cls=Group)
def dead_letters() -> None:
    """List, claim, replay and dismiss dead letters: executions that failed permanently.

    LETTER is the id of the execution, a unique prefix of it, or @last for the one that ended last.
    """


@dead_letters.command("list")
@click.option("--job", metavar="JOB", help="Job name or id; a name includes deleted jobs.")
@click.option("--fingerprint", metavar="HEX", help="Error fingerprint.")
@click.option(
    "--state", multiple=True, type=click.Choice(DEAD_LETTER_STATES), help="State. Repeatable.  [default: open]"
)
@click.option("--all", "everything", is_flag=True, help="Include every state.")
@click.option("--group", is_flag=True, help="Group open dead letters by job and error fingerprint.")
@limit_option(20)
@connected
async def list_dead_letters(
    client: AsyncClient,
    out: Output,
    job: str | None,
    fingerprint: str | None,
    state: tuple[DeadLetterState, ...],
    everything: bool,
    group: bool,
    limit: int,
) -> None:
    """List dead letters, newest first."""
    if group:
        out.page(
            await gather(lambda count, cursor: client.dead_letter_groups(limit=count, cursor=cursor), limit), GROUPS
        )
        return
    states = () if everything else state or ("open",)
    page = await gather(
        lambda count, cursor: client.dead_letters(
            job=job, fingerprint=fingerprint, state=states, limit=count, cursor=cursor
        ),
        limit,
    )
    out.page(page, DEAD_LETTERS)


@dead_letters.command
@click.argument("letter")
@connected
async def get(client: AsyncClient, out: Output, letter: str) -> None:
    """Show a dead letter: its attempts, last output, the change before it, similar ones, and what to do."""
    found = await client.dead_letter(letter)
    around = await failure_lines(client, found) if out.is_text else []
    out.one(found, DEAD_LETTERS, lambda one: "\n".join([dead_letter_details(one), *around]))


@dead_letters.command
@click.argument("letter", required=False)
@click.option("--for", "for_", default="10m", show_default=True, metavar="DURATION", help="How long to hold the claim.")
@click.option("--job", metavar="JOB", help="Without LETTER: job to claim from.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    metavar="N",
    help="Without LETTER: number to claim.",
)
@click.option("--release", is_flag=True, help="Release the claim.")
@connected
async def claim(
    client: AsyncClient, out: Output, letter: str | None, for_: str, job: str | None, limit: int, release: bool
) -> None:
    """Claim LETTER, or the oldest unclaimed ones. Only the owner of a claim can change a dead letter."""
    if letter is None and release:
        raise click.UsageError("Missing LETTER to release.")
    if letter is not None:
        found = await (client.release_dead_letter(letter) if release else client.claim_dead_letter(letter, for_=for_))
        out.one(found, DEAD_LETTERS, _line)
        return
    request = wire.DeadLetterClaim(job=job, limit=limit, for_=for_)
    out.page(await client.claim_dead_letters(request), DEAD_LETTERS)


@dead_letters.command
@click.argument("letter")
@click.argument("text")
@connected
async def note(client: AsyncClient, out: Output, letter: str, text: str) -> None:
    """Add a note to LETTER."""
    out.one(await client.edit_dead_letter(letter, wire.DeadLetterEdit(note=text)), DEAD_LETTERS, dead_letter_details)


@dead_letters.command
@click.argument("letter")
@params_option
@connected
async def edit(client: AsyncClient, out: Output, letter: str, params: dict[str, Any] | None) -> None:
    """Replace the parameters for a replay of LETTER."""
    if params is None:
        raise click.UsageError("Nothing to change. Pass parameters with -p NAME=VALUE.")
    out.one(
        await client.edit_dead_letter(letter, wire.DeadLetterEdit(params=params)), DEAD_LETTERS, dead_letter_details
    )


@dead_letters.command
@click.argument("letters", nargs=-1)
@click.option("--job", metavar="JOB", help="All open dead letters of this job.")
@click.option("--fingerprint", metavar="HEX", help="All open dead letters with this error fingerprint.")
@click.option("--rate", metavar="N/DURATION", help="Maximum starts per time, such as 10/1m.")
@click.option("--canary", is_flag=True, help="Replay one first, and the others only if it succeeds.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=1000,
    show_default=True,
    metavar="N",
    help="Maximum dead letters.",
)
@params_option
@click.option("--dry-run", is_flag=True, help="Show the plan without replaying.")
@yes_option
@connected
async def replay(
    client: AsyncClient,
    out: Output,
    letters: tuple[str, ...],
    job: str | None,
    fingerprint: str | None,
    rate: str | None,
    canary: bool,
    limit: int,
    params: dict[str, Any] | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Replay LETTERS, or all that match the options. Uses the current definition of the job."""
    if len(letters) == 1 and job is None and fingerprint is None:
        one = wire.ReplayOne(params=params, dry_run=dry_run)
        _print_replay(out, await client.replay_dead_letter(letters[0], one))
        return
    if params is not None:
        raise click.UsageError("-p applies to a single LETTER. For several, use: mainspring dead-letters edit")
    ids = await _ids(client, letters)
    request = wire.ReplayMany(
        ids=ids, job=job, fingerprint=fingerprint, limit=limit, rate=rate, canary=canary, dry_run=True
    )
    plan = await client.replay_dead_letters(request)
    if dry_run or not plan.replayed:
        _print_replay(out, plan)
        return
    confirm(_sum(plan), yes=yes)
    request = wire.ReplayMany(ids=ids, job=job, fingerprint=fingerprint, limit=limit, rate=rate, canary=canary)
    _print_replay(out, await client.replay_dead_letters(request))


@dead_letters.command
@click.argument("letters", nargs=-1)
@required_reason_option
@click.option("--job", metavar="JOB", help="All open dead letters of this job.")
@click.option("--fingerprint", metavar="HEX", help="All open dead letters with this error fingerprint.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=1000,
    show_default=True,
    metavar="N",
    help="Maximum dead letters.",
)
@click.option("--dry-run", is_flag=True, help="Show the number without dismissing.")
@yes_option
@connected
async def dismiss(
    client: AsyncClient,
    out: Output,
    letters: tuple[str, ...],
    reason: str,
    job: str | None,
    fingerprint: str | None,
    limit: int,
    dry_run: bool,
    yes: bool,
) -> None:
    """Dismiss LETTERS, or all that match the options."""
    if len(letters) == 1 and job is None and fingerprint is None and not dry_run:
        out.one(await client.dismiss_dead_letter(letters[0], reason), DEAD_LETTERS, _line)
        return
    ids = await _ids(client, letters)

    async def ask(*, dry: bool) -> wire.Dismissed:
        return await client.dismiss_dead_letters(
            wire.DismissMany(ids=ids, job=job, fingerprint=fingerprint, limit=limit, reason=reason, dry_run=dry)
        )

    done = await ask(dry=True)
    if not dry_run and done.dismissed:
        confirm(f"{done.dismissed:,} would be dismissed", yes=yes)
        done = await ask(dry=False)
    if out.is_text:
        echo(f"{done.dismissed:,} {'would be ' if done.dry_run else ''}dismissed")
    else:
        out.value(done)


async def _ids(client: AsyncClient, letters: tuple[str, ...]) -> list[UUID] | None:
    return [(await client.dead_letter(letter)).dead_letter_id for letter in letters] or None


def _sum(replay: wire.Replay) -> str:
    would = "would be " if replay.dry_run else ""
    parts = [f"{replay.replayed:,} {would}replayed"]
    parts += (
        [f"{replay.held:,} {'would be ' if replay.dry_run else ''}held until the first succeeds"] if replay.held else []
    )
    parts += [f"{replay.refused:,} not replayable"] if replay.refused else []
    return ", ".join(parts)


def _print_replay(out: Output, replay: wire.Replay) -> None:
    if not out.is_text:
        out.value(replay)
        return
    for item in replay.items:
        if item.problem is not None:
            echo(f"{str(item.dead_letter_id)[:SHORT_ID]}  {item.problem}")
        elif item.execution_id is not None:
            due = "" if item.due_at is None else f", due {local(item.due_at)}"
            echo(f"{str(item.dead_letter_id)[:SHORT_ID]}  replayed as {item.execution_id}{due}")
    echo(_sum(replay))


def _line(letter: wire.DeadLetter) -> str:
    claimed = f", claimed until {local(letter.claimed_until)}" if letter.claimed_until else ""
    return f"{letter.dead_letter_id}  {letter.title}  {letter.state}{claimed}"
