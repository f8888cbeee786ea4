"""Runs one import: reads the files, proves the plan, prints it, and writes it through the API."""

from __future__ import annotations

from typing import Any

import click

from mainspring.cli.arguments import seconds
from mainspring.cli.import_files import read_files
from mainspring.cli.import_report import Action, ImportReport, print_report
from mainspring.cli.import_write import conflicts_of, decide, write
from mainspring.cli.options import Options
from mainspring.cli.output import Output, print_message
from mainspring.clock import millis
from mainspring.display.times import now
from mainspring.domain.job import NAME
from mainspring.importers.plan import ReadOptions, Unsupported
from mainspring.importers.proof import Proved, prove
from mainspring.importers.readers import SOURCES
from mainspring.importers.schedule_writer import check_zone

UNSUPPORTED, CONFLICT = 6, 5
"""Exit codes."""


async def run_import(
    source: str,
    paths: tuple[str, ...],
    server: Options,
    *,
    dry_run: bool,
    skip_unsupported: bool,
    accept_differences: bool,
    replace: bool,
    paused: bool,
    system: bool = False,
    **given: Any,
) -> None:
    """Import `paths`; exits with 6 if entries cannot be imported, with 5 if jobs of the same names differ."""
    now_ms, out = millis(now()), Output(server.output)
    _check(given["prefix"], given["timezone"], given["timeout"])
    options = ReadOptions(system=system, now_ms=now_ms, **given)
    plan = SOURCES[source].reader()(read_files(SOURCES[source], paths), options)
    proved = prove(plan, now_ms=now_ms, accept_differences=accept_differences)
    refused = bool(plan.unsupported) and not skip_unsupported
    if not plan.entries and not plan.findings:
        raise click.ClickException(f"No entry was found: is this {source}?")
    if dry_run or refused:
        print_report(out, ImportReport(source, proved, plan.findings, {}))
        if refused:
            print_message(_refusal(len(plan.unsupported), len(proved)))
            raise click.exceptions.Exit(UNSUPPORTED)
        return
    actions = await _write(proved, server, replace=replace, paused=paused)
    print_report(out, ImportReport(source, proved, plan.findings, actions))
    if conflicts := conflicts_of(actions):
        names = f"{len(conflicts)} job{'' if len(conflicts) == 1 else 's'}"
        print_message(f"nothing was written: {names} of the same name differ; use --replace, or another --prefix")
        raise click.exceptions.Exit(CONFLICT)


async def _write(proved: list[Proved], server: Options, *, replace: bool, paused: bool) -> dict[str, Action]:
    from mainspring.client import AsyncClient

    async with AsyncClient(server.url, server.token) as client:
        actions = await decide(client, [found.entry.spec for found in proved], replace=replace)
        if not conflicts_of(actions):
            await write(client, [found.entry.spec for found in proved], actions, paused=paused)
    return actions


def _check(prefix: str, timezone: str, timeout: str) -> None:
    if prefix and not NAME.match(prefix):
        raise click.BadParameter(f"{prefix!r}: use letters, digits, '.', '_' and '-'", param_hint="--prefix")
    try:
        check_zone(timezone)
    except Unsupported as error:
        raise click.BadParameter(f"{error.message}: {error.hint}", param_hint="--tz") from None
    if seconds(timeout) <= 0:
        raise click.BadParameter(f"{timeout!r} is too short", param_hint="--timeout")


def _refusal(unsupported: int, rest: int) -> str:
    entries = f"{unsupported} entr{'y' if unsupported == 1 else 'ies'}"
    more = f"; import the other {rest} with --skip-unsupported" if rest else ""
    return f"nothing was written: {entries} cannot be imported{more}"
