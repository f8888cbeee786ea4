"""The command `mainspring`. Subcommands are imported on use, so that --help is fast."""

from __future__ import annotations

import difflib
import importlib
import sys
from io import TextIOWrapper
from typing import Any

import click

from mainspring import __version__
from mainspring.cli.options import Options, server_options

# By section of the help: command, module, summary. The help must not import the modules.
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Start": {
        "dev": ("dev", "Start everything on this machine, for development"),
        "serve": ("serve", "Start a server against a PostgreSQL database"),
        "worker": ("worker", "Start a worker"),
    },
    "Jobs": {
        "add": ("add", "Add a job that runs a command"),
        "run": ("run", "Run a job now or at a given time"),
        "jobs": ("jobs", "List, edit, pause, resume and delete jobs"),
        "backfill": ("backfill", "Execute a job for a range of past fires"),
        "backfills": ("backfill", "List, pause, resume and cancel backfills"),
        "cron": ("cron", "Explain cron expressions and recurrence rules"),
    },
    "Executions": {
        "executions": ("executions", "List, inspect, wait for and cancel executions; print logs"),
        "dead-letters": ("dead_letters", "List, claim, replay and dismiss dead letters"),
        "why": ("queues", "Explain why an execution has not started"),
        "events": ("inspect", "Print executions as they end"),
    },
    "Workflows": {
        "workflows": ("workflows", "Apply, list, run, draw and export workflows"),
        "runs": ("runs", "List, inspect, cancel and rerun workflow runs; approve steps"),
    },
    "Calendars and capacity": {
        "calendars": ("calendars", "Manage calendars of open and closed days"),
        "blackouts": ("blackouts", "Manage windows in which nothing starts"),
        "queues": ("queues", "List queues and change their settings"),
        "reservations": ("reservations", "Reserve worker slots for a time"),
    },
    "Alerts": {
        "alerts": ("alerts", "List alerts and change alert rules"),
        "silences": ("alerts", "Mute alerts"),
        "channels": ("channels", "Manage notification channels"),
    },
    "Operations": {
        "workers": ("inspect", "List workers"),
        "shards": ("inspect", "List schedulers and the owner of each shard"),
        "doctor": ("inspect", "Check the health of the server and its data"),
        "audit": ("audit", "List the audit log"),
        "db": ("db", "Migrate the database"),
        "ui": ("inspect", "Print a sign-in link for the web UI"),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


class LazyGroup(click.Group):
    """Imports a subcommand on use, and turns Mainspring errors into messages and exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"mainspring.cli.{COMMANDS[cmd_name][0]}")
        command = getattr(module, cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {close[0]!r}?" if close else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))  # the same column in every section
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), summary) for name, (_, summary) in commands.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except KeyboardInterrupt:
            ctx.exit(130)
        except Exception as error:
            from mainspring.cli.failure import report

            code = report(error)
            if code is None:
                raise
            ctx.exit(code)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mainspring", message="%(prog)s %(version)s")
@server_options(hidden=False)
@click.pass_context
def main(ctx: click.Context) -> None:
    """Schedule jobs, run them, and see what happened.

    \b
    Get started:
      mainspring dev
      mainspring add hello --every 5s -- echo hi

    The server address and the token come from --url and --token, MAINSPRING_URL and MAINSPRING_TOKEN, the nearest
    .mainspring folder, or ~/.config/mainspring/config.toml. The default address is http://127.0.0.1:7171.
    """
    ctx.ensure_object(Options)
    for stream in (sys.stdout, sys.stderr):
        # An encoding without our glyphs prints a question mark instead of failing.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


if __name__ == "__main__":
    main()
