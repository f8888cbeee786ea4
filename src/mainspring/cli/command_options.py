"""Options that several commands have in common."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import click

from mainspring.cli.arguments import seconds

F = TypeVar("F", bound=Callable[..., Any])


def limit_option(default: int) -> Callable[[F], F]:
    return click.option(
        "--limit",
        type=click.IntRange(1),
        default=default,
        show_default=True,
        metavar="N",
        help="Maximum rows.",
    )


reason_option = click.option("--reason", default="", metavar="TEXT", help="Reason, for the audit log.")
required_reason_option = click.option("--reason", required=True, metavar="TEXT", help="Reason, for the audit log.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
detach_option = click.option(
    "--detach", "--force", "detach", is_flag=True, help="Delete it even if others need it, and remove that dependency."
)
timeout_option = click.option(
    "--timeout",
    type=seconds,
    default=math.inf,
    metavar="DURATION",
    help="Maximum time to wait; exit code 8 after that.",
)


def count_option(default: int, most: int, what: str) -> Callable[[F], F]:
    return click.option(
        "-n", "--count", type=click.IntRange(1, most), default=default, show_default=True, metavar="N", help=what
    )
