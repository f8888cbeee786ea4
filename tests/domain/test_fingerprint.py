"""The same mistake has the same fingerprint, and different mistakes have different ones."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.fingerprint import MAX_CHARS, essence, fingerprint

WORDS = st.text(st.sampled_from("ghijklmnop"), min_size=1, max_size=8)
NUMBERS = st.one_of(st.integers(0), st.integers(10**31, 10**32 - 1))  # also with as many digits as an id
PLACES = st.lists(WORDS, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))


@pytest.mark.parametrize(
    ("error", "common"),
    [
        ("ValueError: row 17 of 2,000 is bad", "ValueError: row <n> of <n> is bad"),
        ("exit code 3", "exit code <n>"),
        ("no such file: '/srv/data/2026/11.csv'", "no such file: '<path>'"),
        ("open ~/notes.txt failed", "open <path> failed"),
        ("C:\\jobs\\a.bat: not found", "<path>: not found"),
        ("GET https://example.com/a/7?x=1 gave 503", "GET <url> gave <n>"),
        ("user 0192d5a0-1c2b-8abc-a123-0123456789ab is gone", "user <id> is gone"),
        ("user 0192d5a01c2b8abca1230123456789ab is gone", "user <id> is gone"),
        ("balance 12345678901234567890123456789012 is odd", "balance <n> is odd"),
        ("object at 0x7f3a10 died", "object at <n> died"),
        ("commit 3f2a9bc17d not found", "commit <id> not found"),
        ("10.0.0.7:5432 can't be reached", "<n> can't be reached"),
        ("KeyError: 'a'\n\nTraceback, line 5", "KeyError: 'a'"),
        ("\n\n  two   spaces\there ", "two spaces here"),
        ("a deadbeef of a job", "a deadbeef of a job"),
        ("either/or", "either/or"),
    ],
)
def test_what_errors_have_in_common(error: str, common: str) -> None:
    assert essence(error) == common


@given(WORDS, NUMBERS, NUMBERS, st.uuids(), st.uuids(), PLACES, PLACES)
def test_numbers_ids_and_paths_make_no_difference(
    word: str, n: int, m: int, one: UUID, other: UUID, here: str, there: str
) -> None:
    assert essence(f"{word} {n} of {one} in {here}: bad") == essence(f"{word} {m} of {other} in {there}: bad")


@given(WORDS, WORDS)
def test_other_words_are_another_mistake(one: str, other: str) -> None:
    assert (essence(f"{one} failed") == essence(f"{other} failed")) == (one == other)


@given(st.text())
def test_any_text_has_an_essence_of_one_short_line(error: str) -> None:
    found = essence(error)
    assert len(found) <= MAX_CHARS and len(found.splitlines()) <= 1
    assert essence(found) == found
    assert len(fingerprint(error, state="failed")) == 16


def test_how_it_ended_belongs_to_the_fingerprint() -> None:
    prints = {
        fingerprint("exit code 3", state="failed", exit_code=3),
        fingerprint("exit code 4", state="failed", exit_code=4),
        fingerprint("exit code 3", state="timed_out", exit_code=3),
        fingerprint(None, state="failed"),
    }
    assert len(prints) == 4
