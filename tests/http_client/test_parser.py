"""Parsing does not depend on how bytes are split, and is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.http_client.errors import ConnectionLost, HttpError, InvalidResponse, ResponseTooLarge
from mainspring.http_client.events import EventParser, ServerSentEvent
from mainspring.http_client.response import MAX_BARREN_BYTES, MAX_HEAD_BYTES, ResponseParser

HEADERS = b'Content-Type: text/plain\r\nX-Empty:\r\nETag: "1"\r\n'
RESPONSES = [
    b"HTTP/1.1 200 OK\r\n" + HEADERS + b"Content-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 Very Good\r\n"
    + HEADERS
    + b"Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nT: 1\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\nX: 1\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 201 Created\r\n"
    + HEADERS
    + b"Content-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
    b"HTTP/1.0 200 OK\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nX: " + b"y" * MAX_HEAD_BYTES + b"\r\nContent-Length: 0\r\n\r\n",
    b"SSH-2.0-OpenSSH\r\n",
]


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    for start, end in pairwise(places):
        yield data[start:end]


def parse(data: bytes, cuts: list[int]) -> object:
    parser = ResponseParser()
    parser.begin(max_bytes=100)
    try:
        for piece in pieces(data, cuts):
            if parser.complete:
                parser.keep_alive = False  # a connection that receives more than the response is closed
                break
            parser.feed(piece)
        parser.finish()
    except HttpError as error:
        return type(error)
    found = parser.response()
    return found.status, found.reason, found.headers, found.body, parser.keep_alive


@given(st.sampled_from(RESPONSES), st.lists(st.integers(0, 100_000), max_size=8))
def test_a_response_is_the_same_however_it_is_split(data: bytes, cuts: list[int]) -> None:
    assert parse(data, cuts) == parse(data, [])


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, (200, "OK", b"hello", True)),
        (1, (200, "Very Good", b"hello", True)),
        (2, (201, "Created", b"hello", True)),
        (3, (204, "No Content", b"", True)),
        (4, (304, "Not Modified", b"", True)),
        (5, (200, "OK", b"hello", False)),
        (6, (200, "OK", b"hello", False)),
        (7, (200, "OK", b"hello", False)),
        (8, ConnectionLost),
        (9, InvalidResponse),
        (10, InvalidResponse),
        (11, InvalidResponse),
        (12, ResponseTooLarge),
        (13, InvalidResponse),
    ],
)
def test_responses(number: int, expected: object) -> None:
    found = parse(RESPONSES[number], list(range(60)))
    if isinstance(found, tuple):
        status, reason, headers, body, keep_alive = found
        assert (status, reason, body, keep_alive) == expected
        if HEADERS in RESPONSES[number]:
            assert headers[:3] == [(b"Content-Type", b"text/plain"), (b"X-Empty", b""), (b"ETag", b'"1"')]
    else:
        assert found is expected


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", b"y" * 1000),
        (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 100),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 50),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n1;", b"x" * 1000),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: ", b"y" * 1000),
    ],
    ids=["endless value", "endless headers", "endless interim responses", "endless extension", "endless trailer"],
)
def test_an_endless_head_is_refused(begin: bytes, more: bytes) -> None:
    parser = ResponseParser()
    parser.begin(max_bytes=100)
    parser.feed(begin)

    def feed_all() -> None:
        for _ in range(MAX_BARREN_BYTES // len(more) + 2):
            parser.feed(more)

    with pytest.raises(InvalidResponse):
        feed_all()


STREAM = (
    ': comment\r\n\r\nid: 1\nevent: chunk\ndata: {"a": 1}\n\ndata: ü\rdata: two\r\r'
    "data\n\nevent: end\r\ndata:  x\r\n\r\n"
    "id: 7\n\nretry: 5\nunknown: 6\n\ndata: incomplete"
).encode()
EVENTS = [
    ServerSentEvent("chunk", '{"a": 1}', "1"),
    ServerSentEvent("message", "ü\ntwo", "1"),
    ServerSentEvent("message", "", "1"),
    ServerSentEvent("end", " x", "1"),
    ServerSentEvent("message", "", "7"),
]


@given(st.lists(st.integers(0, 1000), max_size=len(STREAM)))
def test_events_are_the_same_however_they_are_split(cuts: list[int]) -> None:
    parser = EventParser()
    assert [event for piece in pieces(STREAM, cuts) for event in parser.feed(piece)] == EVENTS


def test_events_byte_by_byte() -> None:
    parser = EventParser()
    assert [event for byte in STREAM for event in parser.feed(bytes([byte]))] == EVENTS


def test_an_endless_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.http_client.events.MAX_EVENT_BYTES", 1000)
    parser = EventParser()
    with pytest.raises(ResponseTooLarge):
        list(chain.from_iterable(parser.feed(b"data: 789\n") for _ in range(200)))
    with pytest.raises(InvalidResponse, match="UTF-8"):
        list(EventParser().feed(b"data: \xff\n\n"))
