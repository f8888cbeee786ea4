"""Confirmation of destructive commands."""

from __future__ import annotations

import sys

import click

from mainspring.cli.output import print_message


def confirm(plan: str, *, yes: bool) -> None:
    """Print what the command will do and ask; `yes` skips the question.

    Without a terminal to ask on, --yes is required. A no ends the command with exit code 1.
    """
    print_message(plan)
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("Nothing was changed: confirm with --yes when there is no terminal.")
    if not click.confirm("Continue?", err=True):
        raise click.exceptions.Exit(1)
