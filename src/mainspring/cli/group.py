"""Groups of commands: whole summaries in the help, and suggestions for mistyped commands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

CLOSE = 0.75
"""How similar a suggestion must be: `tokens` is not `workers`."""


class Group(click.Group):
    """A group whose help shows the first sentence of each command, however long it is."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        found = [(name, command) for name in self.list_commands(ctx) if (command := self.get_command(ctx, name))]
        rows = [(name, summary(command)) for name, command in found if not command.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            from mainspring.domain.suggestion import closest  # late: --help must not load the domain

            ctx.fail(unknown_command(args[0], [closest(args[0], self.commands, cutoff=CLOSE)]))
        return super().resolve_command(ctx, args)


class DatabaseGroup(Group):
    """A group whose commands connect to PostgreSQL themselves: its errors become messages and exit codes."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception as error:
            from mainspring.store.unreachable import as_problem  # late: --help must not load the driver

            problem = as_problem(error)
            if problem is None:
                raise
            raise problem from error


def summary(command: click.Command) -> str:
    """The first sentence of a command's help."""
    text = " ".join((command.help or "").partition("\n\n")[0].split())
    return text.partition(". ")[0].removesuffix(".")


def unknown_command(name: str, suggestions: Iterable[str | None]) -> str:
    meant = [f"'{suggestion}'" for suggestion in suggestions if suggestion]
    listed = meant[0] if len(meant) == 1 else f"{', '.join(meant[:-1])} or {meant[-1]}" if meant else ""
    return f"No such command {name!r}." + (f" Did you mean {listed}?" if listed else "")
