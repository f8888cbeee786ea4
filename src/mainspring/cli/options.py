"""Options that work before and after the command name: server, token, output format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

FORMATS = ("table", "wide", "json", "jsonl", "yaml", "name")


@dataclass
class Options:
    """The options that work before and after the command name."""

    url: str | None = None
    token: str | None = None
    output: str = "table"


def server_options(*, hidden: bool) -> Callable[[F], F]:
    """Add --url, --token and -o; `hidden` leaves the first two out of the help."""

    def decorate(function: F) -> F:
        for flags, help_text, settings in (
            (("-o", "--output"), "Output format.  [default: table]", {"type": click.Choice(FORMATS)}),
            (("--token",), "API token.  [env var: MAINSPRING_TOKEN]", {"metavar": "TOKEN", "hidden": hidden}),
            (("--url",), "Server address.  [env var: MAINSPRING_URL]", {"metavar": "URL", "hidden": hidden}),
        ):
            function = click.option(*flags, help=help_text, expose_value=False, callback=_store, **settings)(function)
        return function

    return decorate


def current() -> Options:
    """The options of the running command."""
    return click.get_current_context().ensure_object(Options)


def _store(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None and parameter.name is not None:
        setattr(ctx.ensure_object(Options), parameter.name, value)
