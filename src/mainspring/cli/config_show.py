"""`mainspring config`: every setting with its value and its origin, and a check before a start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from mainspring import wire
from mainspring.cli.config_file import FOUND, TABLES, ConfigFile, find_file, load_command, long_names, parse
from mainspring.cli.group import Group
from mainspring.cli.options import current, server_options
from mainspring.cli.output import Column, Output, TableLayout, echo
from mainspring.config import ENVIRONMENT_ONLY, PREFIX, unknown_settings
from mainspring.domain.errors import Invalid, MainspringError

HIDDEN = "hidden"
CLIENTS = {"MAINSPRING_URL", "MAINSPRING_TOKEN"}
COMMANDS = (*TABLES, "dev")
SECRET = ("MAINSPRING_SECRET_KEY",)


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting: its value, where the value comes from, and which commands use it."""

    name: str
    value: str | None
    origin: str
    used_by: list[str]


SETTINGS: TableLayout[Setting] = TableLayout(
    name=lambda setting: setting.name,
    columns=[
        Column("SETTING", lambda setting: setting.name),
        Column("VALUE", lambda setting: "–" if setting.value is None else setting.value, wraps=True),
        Column("ORIGIN", lambda setting: setting.origin, wraps=True),
        Column("USED BY", lambda setting: ", ".join(setting.used_by), wraps=True),
    ],
    empty="no settings",
)


@click.group(cls=Group)
def config() -> None:
    """Show the configuration of this machine, and check it."""


@config.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@server_options(hidden=True)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def show(command: tuple[str, ...]) -> None:
    """List every setting with its value and its origin: flag, environment, file or default. Secrets are hidden.

    With a COMMAND, such as `serve --port 8080` or `worker`, only what that command would use.
    """
    if command:
        name, *flags = command
        found = [setting for setting, _ in _settings(_named(name), flags)]
    else:
        found = [*_client_settings(), *_all_settings(), *_variables()]
    Output(current().output).page(wire.Page(items=found), SETTINGS)


@config.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def check(command: tuple[str, ...]) -> None:
    """Check the configuration without starting anything; exit code 6 if something is wrong.

    COMMAND is `serve` or `worker` with its flags; without one, all that the file has a table for. Reads the file,
    validates every value, connects to the database read-only, and reports every problem that it finds.
    """
    names = [command[0]] if command else _tables()
    problems: list[str] = []
    for name in names:
        problems += _problems(name, command[1:])
    problems += unknown_settings(os.environ)
    for problem in problems:
        echo(f"✖ {problem}", err=True)
    if problems:
        raise Invalid(f"{len(problems)} problem{'s' if len(problems) > 1 else ''} in the configuration")
    echo(f"✔ {' and '.join(names)}: the configuration is valid")


def _tables() -> list[str]:
    """The commands that the file has a table for; `serve` without one."""
    given = os.environ.get("MAINSPRING_CONFIG")
    path = find_file(None if given is None else Path(given))
    try:
        content = {} if path is None else parse(path)
    except Invalid:
        content = {}  # reported by the check of the command
    return [table for table in TABLES if table in content] or ["serve"]


def _problems(name: str, flags: tuple[str, ...]) -> Iterator[str]:
    try:
        context = _context(_named(name), list(flags))
    except click.UsageError as error:
        yield f"{name}: {error.format_message()}"
        return
    except MainspringError as error:
        yield f"{name}: {error.message}"
        return
    if name == "serve":
        from mainspring.cli.config_check import server_problems

        yield from (f"{name}: {problem}" for problem in server_problems(context.params))
    elif name == "worker":
        from mainspring.cli.config_check import worker_problems

        yield from (f"{name}: {problem}" for problem in worker_problems(context.params))


def _client_settings() -> list[Setting]:
    from mainspring.client.discovery import discover

    options = current()
    server = discover(options.url, options.token)
    clients = ["commands", "worker", "SDK"]
    return [
        Setting(name="url", value=server.url, origin=server.origin, used_by=clients),
        Setting(name="token", value=HIDDEN if server.token else None, origin=server.token_origin, used_by=clients),
    ]


def _all_settings() -> list[Setting]:
    """The settings of the long-running commands; one that several have with the same value is listed once."""
    found: dict[tuple[str, str | None, str], Setting] = {}
    for command in COMMANDS:
        for setting, variable in _settings(_named(command), []):
            if variable in CLIENTS:
                continue
            key = (setting.name, setting.value, setting.origin)
            used_by = [*(found[key].used_by if key in found else []), *setting.used_by]
            found[key] = msgspec.structs.replace(setting, used_by=used_by)
    return sorted(found.values(), key=lambda setting: setting.name)


def _variables() -> Iterator[Setting]:
    """Variables without an option."""
    for variable in sorted(ENVIRONMENT_ONLY.keys() - CLIENTS):
        name = variable.removeprefix(PREFIX).lower().replace("_", "-")
        value = os.environ.get(variable)
        shown = HIDDEN if value is not None and variable in SECRET else value
        used_by = ["serve" if variable in SECRET else "dev"]
        yield Setting(name=name, value=shown, origin="the default" if value is None else variable, used_by=used_by)


def _named(name: str) -> click.Command:
    if name == "dev":
        from mainspring.cli.dev import dev

        return dev
    if name not in TABLES:
        raise Invalid(f"unknown command {name!r}: use one of {', '.join(COMMANDS)}")
    return load_command(name)


def _context(command: click.Command, flags: list[str]) -> click.Context:
    return command.make_context(str(command.name), list(flags), parent=click.get_current_context().find_root())


def _settings(command: click.Command, flags: list[str]) -> Iterator[tuple[Setting, str]]:
    """Each option of a command with its value, as the command itself would find it, and its variable."""
    context = click.Context(command, info_name=command.name, parent=click.get_current_context().find_root())
    with context:
        given, _, order = command.make_parser(context).parse_args(args=list(flags))
        for option in click.core.iter_params_for_processing(order, command.get_params(context)):
            if not isinstance(option, click.Option) or option.hidden or not (names := long_names(option)):
                continue
            value, source = option.consume_value(context, given)
            if option.name == "config":
                option.handle_parse_result(context, given, [])
                value = find_file(option.type_cast_value(context, value) if isinstance(value, str) else None)
            origin = _origin(option, source, context.meta.get(FOUND))
            variable = option.envvar if isinstance(option.envvar, str) else ""
            if names[-1] != "help":
                yield Setting(name=names[-1], value=_text(value), origin=origin, used_by=[str(command.name)]), variable


def _origin(option: click.Option, source: ParameterSource, file: ConfigFile | None) -> str:
    if source is ParameterSource.COMMANDLINE:
        return option.opts[-1]
    if source is ParameterSource.ENVIRONMENT:
        return str(option.envvar)
    if source is ParameterSource.DEFAULT_MAP and file is not None:
        return str(file.path)
    return "the default"


def _text(value: Any) -> str | None:
    """A value as it is written in a file; None if the option has no value."""
    if value is None or value == () or value == "" or callable(value) or type(value).__name__ == "Sentinel":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else without_password(str(value))


def without_password(address: str) -> str:
    """Return an address such as that of a database, its password replaced."""
    scheme, mark, rest = address.partition("://")
    user, at, host = rest.rpartition("@")
    name, colon, _ = user.partition(":")
    return f"{scheme}{mark}{name}:{HIDDEN}@{host}" if mark and at and colon else address
