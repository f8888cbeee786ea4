"""`mainspring.toml`: values for the options of servers and workers, by the names of their flags.

Keys at the top apply to every command that has the option; those in `[serve]` and `[worker]` to that command. A flag
wins over an environment variable, which wins over the file, which wins over the default. Secrets are not accepted, only
the names of files that contain them.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click

from mainspring.domain.errors import Invalid
from mainspring.domain.suggestion import closest

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_FILE = Path("/etc/mainspring/mainspring.toml")
MAX_BYTES = 64 * 1024
TABLES = ("serve", "worker")
ISSUERS = "issuers"
"""The table whose tables describe identity providers; see domain/issuer.py."""
SHARED = "serve"
"""Commands without a table of their own, such as `db migrate`, use the settings of this one."""
URLS = ("database-url", "direct-database-url", "replica-url", "tenant-database-url", "server-database-url")
NEVER_IN_FILES = {"token": "token-file", "config": ""}
FOUND = "mainspring.config_file"


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A parsed file: the settings at its top, and those of each table."""

    path: Path
    top: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    issuers: Mapping[str, Any] = field(default_factory=dict)

    def settings_of(self, table: str) -> dict[str, tuple[str, Any]]:
        """Return the value of each key and where it stands, for a command."""
        found = {key: (key, value) for key, value in self.top.items()}
        return found | {key: (f"[{table}] {key}", value) for key, value in self.tables.get(table, {}).items()}


def config_option(function: F) -> F:
    """Add --config; its file gives defaults to the other options of the command."""
    return click.option(
        "--config",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        envvar="MAINSPRING_CONFIG",
        show_envvar=True,
        is_eager=True,
        expose_value=False,
        callback=_load,
        help=f"Configuration file.  [default: {DEFAULT_FILE}, if it exists]",
    )(function)


def long_names(option: click.Parameter) -> list[str]:
    return [flag.removeprefix("--") for flag in option.opts if flag.startswith("--")]


def find_file(given: Path | None) -> Path | None:
    return given if given is not None else DEFAULT_FILE if DEFAULT_FILE.exists() else None


def read_file(path: Path, command: click.Command) -> ConfigFile:
    """Read a file and check the names at its top and in the table of a command.

    Options of other commands are loaded only for names that this command does not have.
    """
    content = parse(path)
    tables = {key: value for key, value in content.items() if isinstance(value, dict)}
    issuers = tables.pop(ISSUERS, {})
    top = {key: value for key, value in content.items() if not isinstance(value, dict)}
    for table in tables:
        if table not in TABLES:
            raise Invalid(f"{path}: unknown table [{table}]{_meant(table, (*TABLES, ISSUERS))}")
    if command.name not in TABLES:
        command = load_command(SHARED)
    own = _names(command)
    if top.keys() - own:
        own = set().union(*(_names(load_command(table)) for table in TABLES))
    for key, value in top.items():
        _check_key(path, "", key, value, own)
    for key, value in tables.get(str(command.name), {}).items():
        _check_key(path, f"[{command.name}] ", key, value, _names(command))
    return ConfigFile(path, top, tables, issuers)


def _names(command: click.Command) -> set[str]:
    return {name for option in command.params for name in long_names(option)}


def defaults_for(file: ConfigFile, command: click.Command, context: click.Context) -> dict[str, Any]:
    """Return the values that the file has for a command, by parameter; each is checked as its flag would be."""
    settings = file.settings_of(table_of(command))
    found = {}
    for option in command.params:
        if not isinstance(option, click.Option) or option.name is None:
            continue
        for name in long_names(option):
            if name in settings:
                where, value = settings[name]
                found[option.name] = _checked(option, value, context, f"{file.path}: {where}")
    return found


def table_of(command: click.Command) -> str:
    return str(command.name) if command.name in TABLES else SHARED


def load_command(table: str) -> click.Command:
    """Return the command of a table. Imported on use: a server does not load the worker."""
    if table == "worker":
        from mainspring.cli.worker import worker

        return worker
    from mainspring.cli.serve import serve

    return serve


def _load(context: click.Context, _parameter: click.Parameter, given: Path | None) -> None:
    path = find_file(given)
    if path is None or context.resilient_parsing:
        return
    file = read_file(path, context.command)
    context.meta[FOUND] = file
    context.default_map = defaults_for(file, context.command, context)


def parse(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            if stat.S_ISREG(mode) and mode & stat.S_IWOTH:
                raise Invalid(f"{path}: every user can change this file; run: chmod o-w {path}")
            content = opened.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise Invalid(f"{path}: longer than {MAX_BYTES:,} bytes")
        return tomllib.loads(content.decode())
    except OSError as error:
        raise Invalid(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"{path}: invalid TOML: {error}") from None


def _check_key(path: Path, where: str, key: str, value: Any, known: set[str]) -> None:
    if key in NEVER_IN_FILES:
        instead = NEVER_IN_FILES[key]
        hint = f"; write the token into a file of its own and name that: {instead}" if instead else ""
        raise Invalid(f"{path}: {where}{key} cannot be set in a file{hint}")
    if key not in known:
        raise Invalid(f"{path}: unknown setting {where}{key}{_meant(key, sorted(known - NEVER_IN_FILES.keys()))}")
    if key in URLS and isinstance(value, str) and has_password(value):
        raise Invalid(
            f"{path}: {where}{key} contains a password; write the URL into a file that other users cannot read, and"
            f" name that: {key}-file"
        )


def _meant(word: str, known: Any) -> str:
    close = closest(word, known)
    return f"; did you mean {close!r}?" if close else f"; known: {', '.join(known)}" if len(known) < 5 else ""


def _checked(option: click.Option, value: Any, context: click.Context, where: str) -> Any:
    """Return a value of the file in the form that click expects; an invalid one is an error that names its place."""
    if option.is_flag and not isinstance(value, bool):
        raise Invalid(f"{where}: must be true or false")
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str | int | float) for item in items):
        raise Invalid(f"{where}: must be a string, a number{' or a list of these' if option.multiple else ''}")
    if option.multiple:
        value = items
    elif isinstance(value, list):
        value = ",".join(map(str, items))
    try:
        option.type_cast_value(context, value)
    except click.BadParameter as error:
        raise Invalid(f"{where}: {error.message}") from None
    except Invalid as error:
        raise Invalid(f"{where}: {error.message}") from None
    except TypeError:
        raise Invalid(f"{where}: {value!r} is of the wrong type; write it as on the command line, in quotes") from None
    return value


def has_password(url: str) -> bool:
    from urllib.parse import parse_qs, urlsplit

    authority = url.partition("://")[2].partition("/")[0].partition("?")[0]
    user = authority.rpartition("@")[0]
    return ":" in user or "password" in parse_qs(urlsplit(url).query)
