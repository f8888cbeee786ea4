"""`mainspring completion`: completion of commands, options and live names in a shell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from mainspring.cli.output import echo

if TYPE_CHECKING:
    from mainspring.client import Client

VARIABLE = "_MAINSPRING_COMPLETE"
"""Set by the script of a shell while it asks for completions."""
PROGRAM = "mainspring"
SHELLS = ("bash", "zsh", "fish")
MOST = 100
"""Names that are offered at once."""

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
Names = Callable[["Client", str], Iterable[tuple[str, str]]]
"""Names that begin with a text or not, each with a note."""


@click.command
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell: commands, options, and the names of jobs, executions and so on.

    \b
    Install it:
      eval "$(mainspring completion bash)"          (in ~/.bashrc)
      eval "$(mainspring completion zsh)"           (in ~/.zshrc, after compinit)
      mainspring completion fish | source           (in ~/.config/fish/config.fish)
    """
    from mainspring.cli.main import main

    found = get_completion_class(shell)
    assert found is not None
    echo(found(main, {}, PROGRAM, VARIABLE).source())


def add_names(command: click.Command, group: str) -> click.Command:
    """Let the arguments of a command complete to live names."""
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            add_names(inner, group)
    for parameter in command.params:
        source = _source(parameter, group)
        if source is not None:
            parameter._custom_shell_complete = source
    return command


def _source(parameter: click.Parameter, group: str) -> Complete | None:
    if parameter.name in _SOURCES:
        return _SOURCES[parameter.name]
    return _BY_GROUP.get(group) if parameter.name == "name" and isinstance(parameter, click.Argument) else None


def _live(names: Names) -> Complete:
    """Complete with names from the server; with none if that fails, because a shell shows no error while one types."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from mainspring.client import Client
        from mainspring.domain.errors import MainspringError

        try:
            with Client() as client:
                found = list(names(client, incomplete))
        except (MainspringError, OSError):
            return []
        return [CompletionItem(name, help=note or None) for name, note in found if name.startswith(incomplete)]

    return complete


def _jobs(client: Client, incomplete: str) -> Iterator[tuple[str, str]]:
    for job in client.jobs(limit=MOST, prefix=incomplete or None).items:
        yield job.name, job.schedule_description or "on demand"


def _executions(client: Client, incomplete: str) -> Iterator[tuple[str, str]]:
    yield "@last", "the execution that you started last"
    for execution in client.executions(limit=MOST).items:
        yield str(execution.execution_id), f"{execution.title} {execution.state}"


def _dead_letters(client: Client, incomplete: str) -> Iterator[tuple[str, str]]:
    yield "@last", "the one that ended last"
    for letter in client.dead_letters(limit=MOST, state=["open"]).items:
        yield str(letter.dead_letter_id), letter.title


def _runs(client: Client, incomplete: str) -> Iterator[tuple[str, str]]:
    yield "@last", "the newest run"
    for run in client.runs(limit=MOST).items:
        yield str(run.run_id), f"{run.workflow} {run.state}"


_SOURCES: dict[str, Complete] = {
    "job": _live(_jobs),
    "parent": _live(_jobs),
    "execution": _live(_executions),
    "letter": _live(_dead_letters),
    "letters": _live(_dead_letters),
    "run": _live(_runs),
    "workflow": _live(lambda client, _: ((each.name, "") for each in client.workflows(limit=MOST).items)),
    "queue": _live(lambda client, _: ((each.name, "") for each in client.queues().items)),
}
_BY_GROUP: dict[str, Complete] = {
    "queues": _SOURCES["queue"],
    "workflows": _SOURCES["workflow"],
    "calendars": _live(lambda client, _: ((each.name, "") for each in client.calendars(limit=MOST).items)),
    "channels": _live(lambda client, _: ((each.name, each.kind) for each in client.channels().items)),
    "triggers": _live(lambda client, _: ((each.name, each.job) for each in client.triggers(limit=MOST).items)),
    "reservations": _live(lambda client, _: ((each.name, "") for each in client.reservations().items)),
    "workers": _live(lambda client, _: ((each.name, each.state) for each in client.workers().items)),
}
"""What the argument `name` means in each group."""
