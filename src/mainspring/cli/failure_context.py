"""What surrounds a failure: last output, the change before it, similar failures, and commands that handle it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from mainspring import wire
from mainspring.cli.feed import SHORT_ID
from mainspring.display.definitions import as_json
from mainspring.display.recovery import commands_for
from mainspring.display.text import clean
from mainspring.display.times import local
from mainspring.domain.errors import MainspringError

if TYPE_CHECKING:
    from mainspring.client import AsyncClient

OUTPUT_LINES = 15
MAX_LOG_PAGES = 20
KEPT_CHARS = 20_000
SIMILAR_SHOWN = 5


async def failure_lines(client: AsyncClient, letter: wire.DeadLetter) -> list[str]:
    """Return the sections that follow the details of a dead letter; what retention has deleted is left out."""
    sections = (_output,) if letter.trigger == "step" else (_output, _change, _similar)
    lines: list[str] = []
    for section in sections:
        with suppress(MainspringError):
            lines += await section(client, letter)
    if letter.state != "open":
        return lines
    run_id = letter.run_id
    if letter.trigger == "step" and run_id is None:
        with suppress(MainspringError):
            execution = await client.execution(letter.dead_letter_id)
            run_id = None if execution.step is None else execution.step.run_id
    step = None if letter.step is None else letter.step.rpartition(".")[2]
    return [*lines, "what to do", *(f"  {what}: {command}" for what, command in commands_for(letter, run_id, step))]


async def _output(client: AsyncClient, letter: wire.DeadLetter) -> list[str]:
    place, text = "", ""
    for _ in range(MAX_LOG_PAGES):
        logs = await client.logs(letter.dead_letter_id, place=place)
        if not logs.chunks:
            break
        text, place = text[-KEPT_CHARS:] + "".join(chunk.text for chunk in logs.chunks), logs.place
    found = text.splitlines()[-OUTPUT_LINES:]
    return ["last output", *(f"  {clean(line)}" for line in found)] if found else []


async def _change(client: AsyncClient, letter: wire.DeadLetter) -> list[str]:
    """Return the fields that the failed version changed."""
    if letter.version < 2:
        return []
    found = (await client.versions(letter.job_id, cursor=str(letter.version + 1), limit=2)).items
    if len(found) < 2 or found[0].version != letter.version:
        return []
    new, old = (as_json(version.spec) for version in found)
    fields = [name for name in sorted({*new, *old}) if new.get(name) != old.get(name)]
    head = f"change before it: version {letter.version}, {local(found[0].created_at)} by {found[0].created_by}"
    return [head, *(f"  {name}: {clean(str(old.get(name)))} → {clean(str(new.get(name)))}" for name in fields)]


async def _similar(client: AsyncClient, letter: wire.DeadLetter) -> list[str]:
    page = await client.dead_letters(job=str(letter.job_id), fingerprint=letter.fingerprint, limit=SIMILAR_SHOWN + 1)
    others = [d for d in page.items if d.dead_letter_id != letter.dead_letter_id][:SIMILAR_SHOWN]
    return [
        *(["similar failures"] if others else []),
        *(f"  {str(d.dead_letter_id)[:SHORT_ID]}  {d.state}  {local(d.created_at)}" for d in others),
    ]
