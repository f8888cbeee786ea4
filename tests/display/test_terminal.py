"""Text for a terminal has no character that the terminal obeys, except line breaks, tabs and colours."""

from __future__ import annotations

import json
import re
import time
import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.display.terminal import PrintableStream, printable, printable_json

COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
ATTACKS = {
    "clear the screen": "\x1b[2J\x1b[H",
    "overwrite the line above": "\x1b[1A\x1b[2K",
    "title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "link": "\x1b]8;;https://evil.example\x1b\\here\x1b]8;;\x1b\\",
    "device control": "\x1bP$q q\x1b\\",
    "private message": "\x1b^x\x1b\\ \x1b_x\x1b\\ \x1bXx\x1b\\",
    "one-byte CSI": "\x9b2J",
    "one-byte OSC": "\x9d0;owned\x9c",
    "status report": "\x1b[6n\x1b[c",
    "overwrite": "failed\rsucceeded",
    "backspace": "rm -rf /\x08\x08\x08ls",
    "form feed and vertical tab": "\x0b\x0c",
    "delete": "\x7f",
    "bell": "\x07",
    "charset": "\x1b(0\x0e",
    "direction": "abc\u202edcba\u202c\u2066\u2069\u200f",
    "separators": "a\u2028state: succeeded\u2029",
    "tags": "\U000e0041",
    "insert mode": "\x1b[4h",
    "long colour": "\x1b[" + "1;" * 100 + "m",
}


def obeyed(text: str) -> list[str]:
    """What a terminal would do with the text beside showing it."""
    rest = COLOUR.sub("", text)
    found = (c for c in rest if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Zl", "Zp", "Cs"))
    return [*found, *(c for c in rest if unicodedata.bidirectional(c) in BIDI)]


BIDI = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_an_attack_is_shown_and_not_obeyed(attack: str) -> None:
    shown = printable(f"before {attack} after")
    assert obeyed(shown) == []
    assert shown.startswith("before ") and shown.endswith(" after") and shown != f"before {attack} after"


def test_ordinary_text_stays() -> None:
    text = "tab\tline\nümlaut 漢字 👩\u200d💻 ✔ 1\u00a0000 \x1b[1;31mred\x1b[0m \x1b[38;5;208morange\x1b[m"
    assert printable(text) == text
    assert printable("windows\r\nlines\r\n") == "windows\nlines\n"


@given(st.text(st.sampled_from("\x1b[]m0;:\x07\x9b\r\n\\Pab\u202e")))
def test_nothing_is_obeyed_whatever_the_text(text: str) -> None:
    shown = printable(text)
    assert obeyed(shown) == [] and printable(shown) == shown


@given(st.text(st.sampled_from("\x1b[m31;\r\nab\x07")), st.integers(1, 5))
def test_chunks_show_the_same_as_the_whole(text: str, size: int) -> None:
    stream = PrintableStream()
    parts = [stream.add(text[at : at + size]) for at in range(0, len(text), size)]
    assert all(obeyed(part) == [] for part in parts)
    whole = "".join(parts) + stream.end()
    assert whole.removesuffix("\x1b[0m") == printable(text).removesuffix("\x1b[0m")


def test_a_colour_that_is_cut_in_two_stays_a_colour_and_is_switched_off() -> None:
    stream = PrintableStream()
    assert [stream.add("a\x1b"), stream.add("[3"), stream.add("1mred"), stream.end()] == [
        "a",
        "",
        "\x1b[31mred",
        "\x1b[0m",
    ]
    assert [stream.add("\x1b[1mx\x1b[0m"), stream.end()] == ["\x1b[1mx\x1b[0m", ""]
    assert [stream.add("x\x1b]0;t"), stream.add("\x1b"), stream.end()] == ["x\\x1b]0;t", "", "\\x1b"]


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_means_the_same_and_controls_nothing(value: object) -> None:
    shown = printable_json(msgspec.json.encode(value))
    assert json.loads(shown) == value and obeyed(shown) == []


@pytest.mark.parametrize("piece", ["\x1b[", "\x1b[1;", "\r", "\x1b[0m", "\x1b]0;", "\x9b", "a"])
def test_time_is_linear(piece: str) -> None:
    def cost(times: int) -> float:
        text, begun = piece * times, time.process_time()
        printable(text)
        stream = PrintableStream()
        for at in range(0, len(text), 4096):
            stream.add(text[at : at + 4096])
        stream.end()
        return time.process_time() - begun

    cost(1000)
    small, large = max(cost(20_000), 0.002), cost(200_000)
    assert large < small * 100, "ten times the text, and far from a hundred times the time"
