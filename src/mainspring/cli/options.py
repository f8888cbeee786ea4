"""Options that every command takes, before or after its name: which server, and how to print."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

FORMATS = ("table", "wide", "json", "jsonl", "name")


@dataclass
class Options:
    url: str | None = None
    token: str | None = None
    output: str = "table"


def server_options(*, hidden: bool) -> Callable[[F], F]:
    """--url, --token and -o; `hidden` leaves the first two out of the help."""

    def decorate(function: F) -> F:
        for flags, says, settings in (
            (("-o", "--output"), "How to print results.", {"type": click.Choice(FORMATS)}),
            (("--token",), "The token to use.", {"metavar": "TOKEN", "hidden": hidden}),
            (("--url",), "The server's address.", {"metavar": "URL", "hidden": hidden}),
        ):
            function = click.option(*flags, help=says, expose_value=False, callback=_remember, **settings)(function)
        return function

    return decorate


def current() -> Options:
    """The options of the command that is running."""
    return click.get_current_context().ensure_object(Options)


def _remember(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None and parameter.name is not None:
        setattr(ctx.ensure_object(Options), parameter.name, value)
