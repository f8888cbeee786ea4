"""Lines by chunk, groups, the collapsed middle, and the times of a log."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring import wire
from mainspring.web.draw.log_parts import FIRST_LINES, FOLD_OVER_LINES, LAST_LINES, Group, Lines, grouped, lines_of
from mainspring.web.draw.terminal_output import render
from tests.support.pages import Page

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)
SUMMARY = re.compile("<summary>.*?</summary>")
MARKER = re.compile(r"^::(?:group::[^\r\n]*\r?\n|endgroup::[^\n]*(?:\n|\Z))", re.MULTILINE)


def chunk(seq: int, text: str, stream: wire.Stream = "stdout", at: datetime | None = None) -> wire.LogChunk:
    return wire.LogChunk(attempt=1, seq=seq, stream=stream, text=text, received_at=at)


def text_of(html: str) -> str:
    return Page(SUMMARY.sub("", html)).raw_text


def numbered(count: int) -> str:
    return "".join(f"line {n}\n" for n in range(count))


def test_a_line_belongs_to_the_chunk_in_which_it_begins() -> None:
    found = list(lines_of([chunk(0, "a\nb"), chunk(1, "b\nc\n"), chunk(2, "d"), chunk(3, "d\n")]))
    assert [(lines.seq, lines.text) for lines in found] == [(0, "a\nbb\n"), (1, "c\n"), (2, "dd\n")]


def test_lines_carry_the_time_of_their_chunk_in_the_zone_of_the_reader() -> None:
    chunks = [chunk(0, "one\n", at=NOW), chunk(1, "two\n", at=NOW + timedelta(milliseconds=1500))]
    html = str(render(chunks, zone="Europe/Berlin", now=NOW))
    assert re.findall('data-time="([^"]*)"', html) == ["13:00:00.000", "13:00:01.500"]
    assert "data-day" not in html  # all of it is from today
    before = str(render([chunk(0, "old\n", at=NOW - timedelta(days=1)), *chunks], zone="UTC", now=NOW))
    assert re.findall('data-day="([^"]*)"', before) == ["Tue 17 Nov 2026", "Wed 18 Nov 2026"]


def test_lines_of_earlier_versions_have_no_time() -> None:
    assert "data-time" not in render([chunk(0, "one\n")], zone="UTC", now=NOW)


def test_markers_make_a_group_that_is_closed_when_its_end_was_seen() -> None:
    text = "before\n::group::Build <b>\nin\n::endgroup::\nafter\n::group::Test\nrunning\n"
    html = str(render([chunk(0, text)]))
    assert html.count("<details") == 2
    assert "<summary>Build &lt;b&gt;</summary>" in html
    assert '<details class="log-group" open data-open><summary>Test</summary>' in html
    assert text_of(html) == "before\nin\nafter\nrunning\n"


def test_a_group_ends_with_the_attempt_and_with_the_next_group() -> None:
    first = wire.LogChunk(attempt=1, seq=0, stream="stdout", text="::group::a\nx\n::group::b\ny\n")
    second = wire.LogChunk(attempt=2, seq=0, stream="stdout", text="z\n")
    found = grouped(lines_of([first, second]))
    assert [(part.name, part.open) for part in found if isinstance(part, Group)] == [("a", False), ("b", False)]
    assert isinstance(found[-1], Lines) and found[-1].text == "z\n"


def test_the_end_of_a_group_that_began_earlier_is_marked_for_the_script() -> None:
    assert str(render([chunk(5, "last\n::endgroup::\nnext\n")])).count('<span class="group-end"></span>') == 1


def test_words_that_only_look_like_markers_stay_text() -> None:
    text = "see ::group::x\n ::endgroup::\n::groups::\n"
    assert text_of(str(render([chunk(0, text)]))) == text


def test_the_middle_of_a_long_log_is_collapsed() -> None:
    html = str(render([chunk(0, numbered(2000))], fold=True))
    hidden = 2000 - FIRST_LINES - LAST_LINES
    assert f"Show {hidden:,} more lines" in html
    first, rest = html.split('<details class="log-fold">')
    assert Page(first).raw_text.splitlines()[-1] == f"line {FIRST_LINES - 1}"
    assert Page(rest.split("</details>")[1]).raw_text.splitlines()[0] == f"line {2000 - LAST_LINES}"
    assert text_of(html) == numbered(2000)


def test_without_its_start_all_but_the_end_is_collapsed() -> None:
    """The first line stays outside: it may be the end of one whose beginning is loaded later, and joins it."""
    html = str(render([chunk(0, "the end of a line\n" + numbered(1999))], fold=True, has_start=False))
    first, _ = html.split('<details class="log-fold">')
    assert text_of(first) == "the end of a line\n" and f"Show {1999 - LAST_LINES:,} more lines" in html


@pytest.mark.parametrize("lines", [0, 1, FOLD_OVER_LINES])
def test_a_short_log_is_not_folded(lines: int) -> None:
    assert "<details" not in render([chunk(0, numbered(lines))], fold=True)


def test_colours_stay_in_effect_across_chunks_and_the_fold() -> None:
    chunks = [chunk(0, "\x1b[31mred\n", at=NOW), chunk(1, numbered(1000), at=NOW + timedelta(seconds=1))]
    html = str(render(chunks, zone="UTC", now=NOW, fold=True))
    assert html.count('<i class="c-red">') == 4  # the first line, and the three parts of the rest


PIECES = st.lists(
    st.tuples(
        st.sampled_from(["a", "b\n", "\n", "::group::g\n", "::endgroup::\n", "\r\n", "x\ny", "<&>\n"]),
        st.sampled_from(["stdout", "stderr"]),
    ),
    max_size=40,
)


@given(PIECES, st.booleans())
def test_dividing_a_log_keeps_its_text(pieces: list[tuple[str, wire.Stream]], fold: bool) -> None:
    chunks = [chunk(n, text, stream, NOW) for n, (text, stream) in enumerate(pieces)]
    divided = [lines.text for lines in lines_of(chunks)]
    assert "".join(sorted("".join(divided))) == "".join(sorted("".join(text for text, _ in pieces)))
    expected = "".join(MARKER.sub("", text).replace("\r\n", "\n") for text in divided)
    assert text_of(str(render(chunks, zone="UTC", now=NOW, fold=fold))) == expected
