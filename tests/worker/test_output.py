"""Output chunks: complete characters, numbered, capped."""

from __future__ import annotations

from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from mainspring import wire
from mainspring.worker.output import CHUNK_BYTES, Output


def text(chunks: list[wire.Output], stream: str = "stdout") -> str:
    """The output as readers get it: each chunk decoded separately."""
    return "".join(chunk.data.decode("utf-8", "replace") for chunk in chunks if chunk.stream == stream)


@given(st.text(max_size=200), st.lists(st.integers(1, 7), min_size=1, max_size=50), st.booleans())
def test_no_character_is_torn_however_it_arrives(written: str, sizes: list[int], often: bool) -> None:
    output = Output(uuid4(), 1)
    data, chunks = written.encode("utf-8", "replace"), []
    for n in range(10_000):
        size = sizes[n % len(sizes)]
        piece, data = data[:size], data[size:]
        output.write("stdout", piece)
        if often:
            chunks += output.take()
        if not data:
            break
    output.finish("stdout")
    chunks += output.take()
    assert text(chunks) == written.encode("utf-8", "replace").decode()
    assert [chunk.seq for chunk in chunks] == list(range(len(chunks)))


@given(st.binary(max_size=100), st.integers(1, 5))
def test_what_is_not_text_arrives_byte_for_byte(data: bytes, size: int) -> None:
    output = Output(uuid4(), 1)
    for start in range(0, len(data), size):
        output.write("stderr", data[start : start + size])
    output.finish("stderr")
    assert b"".join(chunk.data for chunk in output.take()) == data


def test_chunks_are_small_and_hold_whole_characters() -> None:
    output = Output(uuid4(), 2)
    written = "a" + "€" * 100_000
    output.write("stdout", written.encode())
    chunks = output.take()
    assert max(len(chunk.data) for chunk in chunks) <= CHUNK_BYTES
    assert text(chunks) == written
    assert {chunk.attempt for chunk in chunks} == {2}


def test_streams_keep_their_order() -> None:
    output = Output(uuid4(), 1)
    for stream, word in (("stdout", "a"), ("stdout", "b"), ("stderr", "c"), ("stdout", "d")):
        output.write(stream, word.encode())  # type: ignore[arg-type]
    assert [(chunk.stream, chunk.data) for chunk in output.take()] == [
        ("stdout", b"ab"),
        ("stderr", b"c"),
        ("stdout", b"d"),
    ]
    assert output.take() == []


def test_the_cap_holds_over_both_streams_and_is_told_once() -> None:
    output = Output(uuid4(), 1, max_bytes=10)
    output.write("stdout", b"x" * 6)
    output.write("stderr", b"y" * 6)
    output.write("stdout", b"z" * 6)
    chunks = output.take()
    assert (text(chunks), text(chunks, "stderr")) == ("x" * 6, "y" * 4)
    assert text(chunks, "system").count("more than 10 bytes") == 1
