"""Secret values in output: every spelling is masked, whatever the chunks are."""

from __future__ import annotations

import base64
import html
import json
import re
import time
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.masking import MASK, Mask, MaskedStream

VALUE = 'p@ss/w0rd "ünïcode" <&>+='
SPELLINGS: dict[str, Callable[[str], str]] = {
    "exact": lambda v: v,
    "base64": lambda v: base64.b64encode(v.encode()).decode(),
    "base64 with a newline": lambda v: base64.b64encode(v.encode() + b"\n").decode(),
    "base64, URL alphabet": lambda v: base64.urlsafe_b64encode(v.encode()).decode(),
    "hexadecimal": lambda v: v.encode().hex(),
    "hexadecimal, upper case": lambda v: v.encode().hex().upper(),
    "percent-encoded": lambda v: quote(v, safe=""),
    "percent-encoded path": quote,
    "percent-encoded form": quote_plus,
    "percent-encoded, lower case": lambda v: re.sub("%..", lambda m: m[0].lower(), quote(v, safe="")),
    "JSON": lambda v: json.dumps(v)[1:-1],
    "JSON, not ASCII": lambda v: json.dumps(v, ensure_ascii=False)[1:-1],
    "Python": lambda v: repr(v)[1:-1],
    "HTML": html.escape,
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("value", ["hunter2", "abcd", VALUE, "x" * 40, "🔑🔑🔑"])
def test_each_spelling_is_masked(spelling: str, value: str) -> None:
    text = SPELLINGS[spelling](value)
    assert Mask([value]).text(f"before {text} after") == f"before {MASK} after"


@given(before=st.binary(max_size=8), after=st.binary(max_size=8), value=st.text(min_size=8, max_size=40))
def test_base64_is_masked_at_every_alignment(before: bytes, after: bytes, value: str) -> None:
    plain = value.encode("utf-8", "replace")
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        masked = Mask([plain.decode()]).data(encode(before + plain + after))
        left = masked.replace(MASK.encode(), b"")
        assert MASK.encode() in masked
        # What is left encodes what stands around the value, and at most a character of it on each side.
        assert len(left) <= -(-len(before) * 8 // 6) + -(-(len(after) + 1) * 8 // 6) + 6


@given(data=st.data())
def test_chunks_do_not_matter(data: st.DataObject) -> None:
    """The masked stream is the masked text, however the text is cut."""
    values = data.draw(st.lists(st.text("ab1%", min_size=4, max_size=9), min_size=1, max_size=3))
    mask = Mask(values)
    texts = [*values, *(f(v) for f in SPELLINGS.values() for v in values), "a", "ab", "b1", " ", "%"]
    text = "".join(data.draw(st.lists(st.sampled_from(texts), max_size=12))).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    stream, parts = MaskedStream(mask), []
    for start, stop in zip([0, *cuts], [*cuts, len(text)], strict=True):
        parts.append(stream.feed(text[start:stop]))
    assert b"".join([*parts, stream.finish()]) == mask.data(text)
    assert not any(spelling in b"".join(parts) for spelling in mask.spellings)


def test_only_a_possible_beginning_is_held_back() -> None:
    stream = MaskedStream(Mask(["secret-value"]))
    assert stream.feed(b"ready\n") == b"ready\n", "a live log is not delayed"
    assert stream.feed(b"the sec") == b"the "
    assert stream.feed(b"ond line") == b"second line"
    assert stream.feed(b"sec") == b"" and stream.feed(b"ret-valu") == b"" and stream.feed(b"e!") == f"{MASK}!".encode()


def test_lines_of_a_long_value_are_masked() -> None:
    pem = "-----BEGIN KEY-----\n" + "\n".join(f"{n}" * 64 for n in "abcdefgh") * 3 + "\n-----END KEY-----\n"
    masked = Mask([pem]).text("\r\n".join(["x", *pem.splitlines(), "y"]))
    assert "aaaaaa" not in masked and masked.startswith("x") and masked.endswith("y")
    assert "cccccc" not in Mask([pem]).text(pem)


def test_json_values_are_masked_with_names_and_numbers() -> None:
    mask = Mask(["123456", "hunter2"])
    found = mask.json({"a": ["hunter2!", 123456, True, 1.5, None], "hunter2": {"b": 9123456}})
    assert found == {"a": [f"{MASK}!", MASK, True, 1.5, None], MASK: {"b": MASK}}


def test_short_values_are_not_masked() -> None:
    assert not Mask(["abc"]) and Mask(["abc"]).text("abc") == "abc"


@pytest.mark.parametrize("text", ["a" * 64_000, "ab" * 32_000, "a" * 511 + "c"])
def test_the_cost_is_bounded(text: str) -> None:
    """A value built to be nearly found everywhere; 2 MB in pieces of 64,000 bytes."""
    mask = Mask(["a" * 511 + "b", "ab" * 255 + "c"])
    stream, began = MaskedStream(mask), time.process_time()
    for _ in range(2_000_000 // len(text)):
        stream.feed(text.encode())
    assert time.process_time() - began < 10
