"""The command `mainspring`. Subcommands are imported on use, so that --help is fast."""

from __future__ import annotations

import importlib
import keyword
import os
import sys
from io import TextIOWrapper
from typing import Any

import click

from mainspring import __version__
from mainspring.cli.group import CLOSE, unknown_command
from mainspring.cli.options import Options, server_options

# By section of the help: command, module, summary. The help must not import the modules.
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Start": {
        "dev": ("dev", "Start everything on this machine, for development"),
        "serve": ("serve", "Start a server against a PostgreSQL database"),
        "worker": ("worker", "Start a worker"),
    },
    "Jobs": {
        "add": ("add", "Add a job: a command, a URL, a container or a function"),
        "run": ("run", "Run a job now or at a given time"),
        "exec": ("exec", "Run a command here and report it as an execution of a job"),
        "jobs": ("jobs", "List, edit, pause, resume and delete jobs; statistics"),
        "triggers": ("triggers", "Manage webhooks and other events that start jobs"),
        "backfill": ("backfill", "Execute a job for a range of past fires"),
        "backfills": ("backfill", "List, pause, resume and cancel backfills"),
        "cron": ("cron", "Explain cron expressions and recurrence rules"),
        "import": ("import_jobs", "Import jobs from cron, systemd, Celery, Kubernetes, Airflow and others"),
    },
    "Executions": {
        "executions": ("executions", "List, inspect, wait for, cancel, requeue and export executions"),
        "logs": ("executions", "Print the log of an execution"),
        "dead-letters": ("dead_letters", "List, claim, replay and dismiss dead letters"),
        "why": ("queues", "Explain why an execution has not started"),
        "events": ("inspect", "Print executions as they end"),
        "top": ("top", "Show queues, workers and executions, live"),
    },
    "Workflows": {
        "workflows": ("workflows", "Apply, list, run, draw and export workflows"),
        "runs": ("runs", "List, inspect, cancel and rerun workflow runs; approve steps"),
    },
    "Manifests": {
        "validate": ("manifests", "Check manifests without a server"),
        "diff": ("manifests", "Show what applying manifests would change"),
        "apply": ("manifests", "Apply manifests, all or none"),
        "export": ("manifests", "Write objects as manifests"),
        "schema": ("manifests", "Print the JSON Schema of manifests"),
    },
    "Calendars and capacity": {
        "calendars": ("calendars", "Manage calendars of open and closed days"),
        "blackouts": ("blackouts", "Manage windows in which nothing starts"),
        "queues": ("queues", "List, pause and resume queues; change their settings"),
        "costs": ("costs", "Show what jobs, queues and tenants used and cost"),
        "forecast": ("forecast", "Show the load expected in the coming days"),
        "reservations": ("reservations", "Reserve worker slots for a time"),
        "duration-requests": ("duration_requests", "Request and approve timeouts above the maximum of a queue"),
    },
    "Alerts": {
        "alerts": ("alerts", "List alerts and change alert rules"),
        "silences": ("alerts", "Mute alerts"),
        "channels": ("channels", "Manage notification channels"),
    },
    "Access": {
        "login": ("login", "Sign in at the server's identity provider"),
        "logout": ("login", "Forget the sign-in to the server"),
        "whoami": ("login", "Show who the server takes you for, and what you may do"),
        "tokens": ("tokens", "Issue, list, rotate and revoke API tokens"),
        "users": ("users", "Manage users and services"),
        "roles": ("users", "Manage roles: named sets of scopes"),
        "tenants": ("tenants", "Manage tenants, their quotas and shares"),
        "browser-sessions": ("browser_sessions", "List the browsers that are signed in, and sign them out"),
    },
    "Operations": {
        "workers": ("inspect", "List, drain and resume workers, and issue tokens for them"),
        "shards": ("inspect", "List schedulers and the owner of each shard"),
        "doctor": ("inspect", "Check the health of the server and its data"),
        "watch": ("watch", "Raise an alarm from outside when the whole cluster is silent"),
        "audit": ("audit", "List, verify and export the audit log"),
        "secrets": ("secrets", "Manage secrets of jobs and channels, and master keys"),
        "archive": ("archive", "List, verify and restore archived days of history and output"),
        "db": ("db", "Migrate, inspect, back up and restore the database"),
        "ui": ("inspect", "Print a sign-in link for the web UI"),
        "config": ("config_show", "Show every setting with its value and its origin, and check them"),
        "completion": ("completion", "Print the completion script of a shell"),
    },
}
ATTRIBUTES = {"exec": "exec_", "logs": "execution_logs"}
"""Commands whose functions have another name."""
COMPLETES = "_MAINSPRING_COMPLETE"
MAX_SUGGESTIONS = 3
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


class LazyGroup(click.Group):
    """Imports a subcommand on use, and turns Mainspring errors into messages and exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"mainspring.cli.{COMMANDS[cmd_name][0]}")
        name = cmd_name.replace("-", "_")
        command = getattr(module, ATTRIBUTES.get(cmd_name, f"{name}_" if keyword.iskeyword(name) else name))
        assert isinstance(command, click.Command)
        if COMPLETES in os.environ:
            from mainspring.cli.completion import add_names

            return add_names(command, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(unknown_command(args[0], self._suggestions(ctx, args[0])))
        return super().resolve_command(ctx, args)

    def _suggestions(self, ctx: click.Context, word: str) -> list[str]:
        """Commands like a mistyped one; or those of groups, as `executions cancel` for `cancel`."""
        from mainspring.domain.suggestion import closest

        groups = {name: self.get_command(ctx, name) for name in COMMANDS}
        verbs = [
            (name, verb) for name, group in groups.items() if isinstance(group, click.Group) for verb in group.commands
        ]
        known = dict.fromkeys(verb for _, verb in verbs)
        if word not in known and (close := closest(word, COMMANDS, cutoff=CLOSE)) is not None:
            return [close]
        near = closest(word, known, cutoff=CLOSE)
        return [f"{name} {verb}" for name, verb in verbs if verb == near][:MAX_SUGGESTIONS]

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
    `mainspring config show` prints what is used and why. NO_COLOR switches colors off.
    """
    ctx.ensure_object(Options)
    for stream in (sys.stdout, sys.stderr):
        # An encoding without our glyphs prints a question mark instead of failing.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


if __name__ == "__main__":
    main()
