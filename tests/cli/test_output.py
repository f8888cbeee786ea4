from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from mainspring import wire
from mainspring.cli.output import Column, Output, TableLayout, _fitting, aligned
from mainspring.display.text import clean

LAYOUT: TableLayout[str] = TableLayout(
    name=lambda word: word.lower(),
    columns=[
        Column("WORD", lambda word: word, color=lambda _: "green"),
        Column("SIZE", lambda w: str(len(w)), wide=True),
    ],
    empty="no words",
)
WORDS = wire.Page(items=["One", "Eleven"], next_cursor="c")


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("table", "WORD\nOne\nEleven\n"),
        ("wide", "WORD    SIZE\nOne     3\nEleven  6\n"),
        ("name", "one\neleven\n"),
        ("jsonl", '"One"\n"Eleven"\n'),
        ("json", '{\n  "items": [\n    "One",\n    "Eleven"\n  ],\n  "next_cursor": "c"\n}\n'),
    ],
)
def test_a_page_in_every_form(form: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Output(form).page(WORDS, LAYOUT)
    printed = capsys.readouterr()
    assert printed.out == text
    assert ("more rows exist" in printed.err) == (form in ("table", "wide"))


def test_an_empty_page_is_a_message_as_text_and_an_empty_list_as_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nothing: wire.Page[str] = wire.Page(items=[])
    Output("table").page(nothing, LAYOUT)
    assert capsys.readouterr() == ("", "no words\n")
    Output("json").page(nothing, LAYOUT)
    assert '"items": []' in capsys.readouterr().out


def test_one_thing_in_every_form(capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("table", "wide", "name", "json", "jsonl"):
        Output(form).one("One", LAYOUT, lambda word: f"details of {word}")
    assert capsys.readouterr().out == 'details of One\ndetails of One\none\n"One"\n"One"\n'


def test_columns_are_aligned_without_trailing_blanks() -> None:
    assert aligned([["a", "b"], ["ccc", ""]], indent="> ") == ["> a    b", "> ccc"]
    assert aligned([]) == []


def test_text_can_not_take_over_the_terminal() -> None:
    assert clean("a\x1b[2Jb\rc\nd\u202e✔ü") == "a\\x1b[2Jb\\rc\\nd\\u202e✔ü"


SCRIPT = """
import sys
from tests.cli.test_output import LAYOUT, WORDS
from mainspring.cli.output import Output
Output("table").page(WORDS, LAYOUT)
print("rich" if "rich" in sys.modules else "plain")
"""


def on_a_terminal(**env: str) -> str:
    """The text of a table on a pseudo-terminal."""
    ours, theirs = pty.openpty()
    # Inherited settings of whoever runs the tests must not decide.
    base = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLORTERM")}
    subprocess.run(
        [sys.executable, "-c", SCRIPT],
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        check=True,
        env={**base, "TERM": "xterm-256color", **env},
    )
    os.close(theirs)
    text = b""
    try:
        while piece := os.read(ours, 4096):
            text += piece
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(ours)
    return text.decode()


def test_a_terminal_gets_colors_unless_told_not_to() -> None:
    assert "\x1b[32mOne" in on_a_terminal()
    assert "\x1b[32m" not in on_a_terminal(NO_COLOR="1")
    dumb = on_a_terminal(TERM="dumb")
    assert "\x1b" not in dumb
    assert dumb.endswith("plain\r\n")


def test_optional_columns_are_left_out_of_a_narrow_terminal() -> None:
    columns: list[Column[str]] = [
        Column("A", lambda _: "x" * 10),
        Column("B", lambda _: "y" * 40, wraps=True),
        Column("C", lambda _: "z" * 8, optional=True),
        Column("D", lambda _: "w" * 8, optional=True),
    ]
    assert [column.title for column in _fitting(["item"], columns, 44)] == ["A", "B", "C", "D"]
    assert [column.title for column in _fitting(["item"], columns, 43)] == ["A", "B", "C"]
    assert [column.title for column in _fitting(["item"], columns, 10)] == ["A", "B"]
