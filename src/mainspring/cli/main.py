"""The command `mainspring`. Subcommands are imported when they are used, so that help is immediate."""

from __future__ import annotations

import difflib
import importlib
import sys
from io import TextIOWrapper
from typing import Any

import click

from mainspring import __version__
from mainspring.cli.options import Options, server_options

# Name, module and what the overview says; help must not import the modules to know it.
COMMANDS = {
    "dev": ("dev", "Start everything on this machine: database, scheduler, worker, web UI."),
    "serve": ("serve", "Start a server against a PostgreSQL database."),
    "worker": ("worker", "Start a worker that executes jobs for a server."),
    "add": ("add", "Add a job that runs a command, on a schedule or on demand."),
    "run": ("run", "Run a job now, or at a given time."),
    "jobs": ("jobs", "List, look at, change, pause and delete jobs."),
    "backfill": ("backfill", "Execute a range of a job's past instants."),
    "backfills": ("backfill", "List, look at, pause, resume and cancel backfills."),
    "workflows": ("workflows", "Write, look at, run, draw and export workflows."),
    "runs": ("runs", "List and look at runs of workflows; approve, skip, cancel and repeat."),
    "calendars": ("calendars", "Open and closed days that schedules follow."),
    "reservations": ("reservations", "Places on workers that are kept for a time."),
    "blackouts": ("blackouts", "Maintenance windows in which nothing starts."),
    "executions": ("executions", "List, look at, wait for and cancel executions; read their output."),
    "dead-letters": ("dead_letters", "Look at, claim, replay and dismiss what failed for good."),
    "events": ("inspect", "Show executions as they start and end."),
    "why": ("queues", "Say why an execution does not run yet."),
    "queues": ("queues", "List queues with what waits in them, and set how they are worked off."),
    "workers": ("inspect", "List the workers."),
    "alerts": ("alerts", "List what fires, and set the rules that say so."),
    "silences": ("alerts", "Tell nobody for a while, or in maintenance windows."),
    "channels": ("channels", "Where notices go: add, try out, look at what was sent."),
    "audit": ("audit", "List who did what, and why."),
    "shards": ("inspect", "Show the schedulers and who owns which shard."),
    "cron": ("cron", "Explain cron expressions; needs no server."),
    "ui": ("inspect", "Print a link that signs a browser in."),
    "doctor": ("inspect", "Check that the server keeps its promises."),
    "db": ("db", "Migrate and look at the database."),
}


class LazyGroup(click.Group):
    """Imports a subcommand when it is asked for, and turns our errors into messages and exit codes."""

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
        with formatter.section("Commands"):
            formatter.write_dl([(name, says) for name, (_, says) in COMMANDS.items()])

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

    The server and its token are found in --url and --token, in MAINSPRING_URL and MAINSPRING_TOKEN, in
    .mainspring of this folder or one above, or in ~/.config/mainspring/config.toml; otherwise the server is
    http://127.0.0.1:7171.

    \b
    To begin:  mainspring dev
    Then:      mainspring add hello --every 5s -- echo hi
    """
    ctx.ensure_object(Options)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that lacks a glyph shows a question mark instead of a traceback.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


if __name__ == "__main__":
    main()
