"""Tables and details of dead letters."""

from __future__ import annotations

from mainspring import wire
from mainspring.cli.feed import SHORT_ID
from mainspring.cli.output import Column, TableLayout
from mainspring.cli.tables.executions import attempt_lines
from mainspring.cli.tables.fields import pairs
from mainspring.cli.tables.jobs import command_text
from mainspring.codec import encode
from mainspring.display.text import clean
from mainspring.display.times import local

DEAD_LETTERS: TableLayout[wire.DeadLetter] = TableLayout(
    name=lambda letter: str(letter.dead_letter_id),
    columns=[
        Column("ID", lambda letter: str(letter.dead_letter_id)[:SHORT_ID]),
        Column("JOB", lambda letter: letter.title, wraps=True),
        Column("STATE", lambda letter: letter.state),
        Column("ENDED", lambda letter: f"{letter.ended_as.replace('_', ' ')} {local(letter.created_at)}"),
        Column("ERROR", lambda letter: letter.what[:120], wraps=True),
        Column("CLAIMED BY", lambda letter: letter.claimed_by or "–", wide=True),
        Column("FINGERPRINT", lambda letter: letter.fingerprint, wide=True),
        Column("FULL ID", lambda letter: str(letter.dead_letter_id), wide=True),
    ],
    empty="no dead letters",
)


GROUPS: TableLayout[wire.DeadLetterGroup] = TableLayout(
    name=lambda group: group.fingerprint,
    columns=[
        Column("JOB", lambda group: group.job, wraps=True),
        Column("COUNT", lambda group: f"{group.count:,}" + ("" if group.exact else "+")),
        Column("FIRST", lambda group: local(group.first_at)),
        Column("LAST", lambda group: local(group.last_at)),
        Column("ERROR", lambda group: group.what[:120], wraps=True),
        Column("FINGERPRINT", lambda group: group.fingerprint),
    ],
    empty=DEAD_LETTERS.empty,
)


def dead_letter_details(letter: wire.DeadLetter) -> str:
    claimed = f"{letter.claimed_by} until {local(letter.claimed_until)}" if letter.claimed_until else ""
    text = pairs(
        ("id", letter.dead_letter_id),
        ("job", f"{letter.title}, version {letter.version}"),
        *([("run", f"{letter.run_id} (replay or dismiss the dead letter of the run)")] if letter.run_id else []),
        ("state", letter.state),
        ("ended", f"{letter.ended_as.replace('_', ' ')} at {local(letter.created_at)}"),
        ("command", command_text(letter.definition) if letter.definition else ""),
        ("reason", letter.reason),
        ("exit code", letter.exit_code),
        ("fire", local(letter.fire_at)),
        ("claimed by", claimed),
        ("note", f"{letter.note} ({letter.noted_by})" if letter.note else ""),
        ("parameters", "" if letter.params is None else encode(letter.params).decode()),
        ("edited parameters", "" if letter.new_params is None else encode(letter.new_params).decode()),
        ("replay of", letter.replay_of),
        ("replayed as", f"{letter.replayed_as} by {letter.replayed_by}" if letter.replayed_as else ""),
        ("held until", letter.replay_after),
        ("resolved by", letter.resolved_by),
        ("closed", f"{local(letter.closed_at)} by {letter.closed_by}" if letter.closed_at else ""),
        ("close reason", letter.close_reason),
        ("fingerprint", letter.fingerprint),
    )
    error = ["error", *(f"  {clean(line)}" for line in letter.error.splitlines())] if letter.error else []
    return "\n".join([text, *attempt_lines(letter.attempts), *error])
