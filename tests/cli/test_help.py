"""The help of every command, by walking all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from mainspring.cli.main import COMMANDS, main
from mainspring.config import ENVIRONMENT
from tests.support.invoke import Invoke


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command with its words."""

    def walk(words: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
        yield words, command
        for name, inner in command.commands.items() if isinstance(command, click.Group) else ():
            yield from walk(f"{words} {name}", inner)

    context = click.Context(main)
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        yield from walk(name, command)


ALL = dict(commands())


def help_of(words: str, width: int = 100) -> str:
    context = click.Context(ALL[words], info_name=words, terminal_width=width, max_content_width=width)
    return ALL[words].get_help(context)


@pytest.mark.parametrize("words", ALL)
def test_help_is_complete(words: str) -> None:
    text = help_of(words)
    assert not re.search(r"[a-z]\.\.\.$", text, re.MULTILINE), "a summary is cut"
    assert not re.search(r"(?<![\w`.])_[A-Z]{2,}", text), "the name of a function leaks"
    command = ALL[words]
    assert command.help or words in COMMANDS
    for parameter in command.params:
        if not isinstance(parameter, click.Option) or parameter.hidden:
            continue
        assert parameter.help, parameter.opts
        metavar = parameter.metavar or ""
        assert not metavar.startswith("_"), parameter.opts
        if parameter.metavar is None and not parameter.is_flag and not isinstance(parameter.type, click.Choice):
            assert isinstance(parameter.type, click.types.StringParamType | click.Path), parameter.opts
        for variable in [parameter.envvar] if isinstance(parameter.envvar, str) else []:
            assert variable in text, f"{variable} is not in the help"
            assert variable in ENVIRONMENT


@pytest.mark.parametrize("words", [words for words, command in ALL.items() if isinstance(command, click.Group)])
def test_groups_show_whole_sentences(words: str) -> None:
    group = ALL[words]
    assert isinstance(group, click.Group)
    text = " ".join(help_of(words, width=60).split())
    for name, command in group.commands.items():
        sentence = " ".join((command.help or "").partition("\n\n")[0].split()).partition(". ")[0].removesuffix(".")
        assert f"{name} {sentence}" in text


def test_the_program_shows_its_environment_variables(invoke: Invoke) -> None:
    text = invoke("--help").stdout
    for variable in ("MAINSPRING_URL", "MAINSPRING_TOKEN", "NO_COLOR"):
        assert variable in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tokns",), "Did you mean 'tokens'?"),
        (("job",), "Did you mean 'jobs'?"),
        (("deadletters",), "Did you mean 'dead-letters'?"),
        (("requeue",), "Did you mean 'executions requeue'?"),
        (("cancel",), "'executions cancel'"),
        (("jobs", "lst"), "Did you mean 'list'?"),
        (("executions", "log"), "Did you mean 'logs'?"),
        (("queues", "pausee"), "Did you mean 'pause'?"),
        (("xyzzy",), "No such command 'xyzzy'.\n"),
        (("jobs", "xyzzy"), "No such command 'xyzzy'.\n"),
    ],
)
def test_mistyped_commands_get_a_fitting_suggestion_or_none(invoke: Invoke, words: tuple[str, ...], said: str) -> None:
    result = invoke(*words)
    assert result.exit_code == 2
    assert said in result.stderr
    if said.startswith("No such"):
        assert "Did you mean" not in result.stderr
