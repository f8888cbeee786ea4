"""`docs/reference/cli.md`: every command of the CLI, from the click tree."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass

import click

from mainspring.cli.failure import EXIT_CODES
from mainspring.cli.main import main
from tools.reference.markdown import block, code, table
from tools.reference.markdown import page as make_page

_EXTRA = re.compile(r"\s*\[((?:env var|default|required|[^\[\]]*<=?x)[^\[\]]*(?:\[[^\]]*\])?[^\[\]]*)\]$")


@dataclass(frozen=True)
class OptionRow:
    """One option, as its help line describes it."""

    flags: str
    variable: str
    default: str
    meaning: str


def page() -> str:
    context = click.Context(main, info_name="mainspring")
    return make_page(
        "Command-line reference",
        _text(main),
        "## Global options\n\nEach of them works before and after the command.",
        _options(context),
        "## Exit codes",
        table(("Code", "Meaning"), [(str(number), meaning) for number, meaning in EXIT_CODES.items()]),
        *(text for found in commands() for text in _command(found)),
    )


def commands(context: click.Context | None = None) -> Iterator[click.Context]:
    """Every visible command below `context`, groups first, in the order of the help."""
    context = context or click.Context(main, info_name="mainspring")
    assert isinstance(context.command, click.Group)
    for name in context.command.list_commands(context):
        command = context.command.get_command(context, name)
        assert command is not None
        if not command.hidden:
            child = click.Context(command, info_name=name, parent=context)
            yield child
            if isinstance(command, click.Group):
                yield from commands(child)


def option_rows(context: click.Context) -> list[OptionRow]:
    """The visible options of a command, without --help and --output."""
    rows = []
    for parameter in context.command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is None or "--help" in record[0] or (context.parent and "--output" in record[0]):
            continue
        meaning, default = _split(record[1])
        rows.append(OptionRow(record[0], str(parameter.envvar or ""), default, meaning))
    return rows


def _split(text: str) -> tuple[str, str]:
    """The meaning and the default of a help line; what else click adds in brackets joins the meaning."""
    match = _EXTRA.search(text)
    if match is None:
        return text, ""
    parts = [part for part in match[1].split("; ") if not part.startswith("env var: ")]
    default = next((part.removeprefix("default: ") for part in parts if part.startswith("default: ")), "")
    rest = [part for part in parts if not part.startswith("default: ")]
    return text[: match.start()] + (f" ({', '.join(rest)})" if rest else ""), default


def _command(context: click.Context) -> Iterator[str]:
    command = context.command
    yield f"{'##' if context.parent and context.parent.parent is None else '###'} {context.command_path}"
    yield _text(command)
    if not isinstance(command, click.Group):
        yield block(" ".join([context.command_path, *command.collect_usage_pieces(context)]))
        yield _options(context)


def _text(command: click.Command) -> str:
    """The help text; paragraphs marked as preformatted become code blocks."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    return "\n\n".join(
        block(paragraph.removeprefix("\b\n")) if paragraph.startswith("\b\n") else " ".join(paragraph.split())
        for paragraph in paragraphs
    )


def _options(context: click.Context) -> str:
    rows = [(code(row.flags), row.meaning, code(row.default), code(row.variable)) for row in option_rows(context)]
    if any(variable for *_, variable in rows):
        return table(("Option", "Meaning", "Default", "Environment variable"), rows)
    return table(("Option", "Meaning", "Default"), [row[:3] for row in rows])
