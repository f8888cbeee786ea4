"""`submit_many` of both clients, with a server that answers as the test says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from uuid import UUID

import pytest

from mainspring import wire
from mainspring.client import AsyncClient, Client, Server, SubmitFailed, Unreachable
from mainspring.domain import errors
from tests.support.scripted_server import Asked, Reply, Scripted, problem

pytestmark = pytest.mark.anyio
PATH = "/api/v1/executions:batch"


def items(count: int) -> Iterator[wire.BatchItem]:
    return (wire.BatchItem(job="hello", params={"n": n}) for n in range(count))


def echo(asked: Asked) -> Reply:
    """The id of an item is its number; every seventh is refused."""
    numbers = [item["params"]["n"] for item in asked.json()["items"]]
    return Reply(
        wire.BatchAnswer(
            items=[
                wire.Submitted(status=422, error="no")
                if n % 7 == 3
                else wire.Submitted(status=202, execution_id=UUID(int=n))
                for n in numbers
            ]
        )
    )


@pytest.fixture(params=["async", "sync"])
def submit_many(request: pytest.FixtureRequest, server: Scripted):
    async def call(found: Iterator[wire.BatchItem], **options: int) -> list[UUID]:
        if request.param == "async":
            async with AsyncClient(server=Server(server.url, "t", "--url")) as client:
                return await client.submit_many(found, **options)
        with Client(server=Server(server.url, "t", "--url")) as client:
            return await asyncio.to_thread(client.submit_many, found, **options)

    return call


async def test_batches_in_order(server: Scripted, submit_many) -> None:
    server.on("POST", PATH, echo)
    with pytest.raises(SubmitFailed, match=r"357 of 2,501 items were not submitted: item 3: no; .* 352 more") as failed:
        await submit_many(items(2501))
    assert failed.value.errors == {n: "no" for n in range(2501) if n % 7 == 3}
    assert failed.value.execution_ids == [None if n % 7 == 3 else UUID(int=n) for n in range(2501)]
    assert sorted(len(asked.json()["items"]) for asked in server.asked[:3]) == [501, 1000, 1000]
    assert await submit_many(items(3)) == [UUID(int=n) for n in range(3)]
    assert await submit_many(items(0)) == []


async def test_several_batches_are_in_flight_and_no_more(server: Scripted, submit_many) -> None:
    together = threading.Barrier(3, timeout=30)
    at_once: list[int] = []
    busy: set[int] = set()

    def wait_for_others(asked: Asked) -> Reply:
        busy.add(id(asked))
        at_once.append(len(busy))
        together.wait()
        busy.discard(id(asked))
        return Reply(wire.BatchAnswer(items=[wire.Submitted(status=202, execution_id=UUID(int=1))] * 1000))

    server.on("POST", PATH, wait_for_others)
    assert len(await submit_many(items(6000), in_flight=3)) == 6000
    assert max(at_once) == 3


async def test_a_request_that_is_too_large_is_split(server: Scripted, submit_many) -> None:
    def at_most_300(asked: Asked) -> Reply:
        found = asked.json()["items"]
        return problem(413, "too_large", "too large") if len(found) > 300 else echo_all(found)

    def echo_all(found: list) -> Reply:  # type: ignore[type-arg]
        return Reply(
            wire.BatchAnswer(
                items=[wire.Submitted(status=202, execution_id=UUID(int=item["params"]["n"])) for item in found]
            )
        )

    server.on("POST", PATH, at_most_300)
    assert await submit_many(items(1000)) == [UUID(int=n) for n in range(1000)]


async def test_an_invalid_item_is_named(server: Scripted, submit_many) -> None:
    listed = [{"pointer": "/items/1/key", "message": "too long", "hint": "at most 200"}]
    server.on(
        "POST",
        PATH,
        lambda asked: (
            problem(422, "invalid", "invalid", listed)
            if len(asked.json()["items"]) < 1000
            else Reply(wire.BatchAnswer(items=[wire.Submitted(status=202, execution_id=UUID(int=1))] * 1000))
        ),
    )
    with pytest.raises(SubmitFailed) as failed:
        await submit_many(items(1003), in_flight=1)
    other = "another item of the same request is invalid"
    assert failed.value.errors == {1000: other, 1001: "/key: too long (at most 200)", 1002: other}


async def test_no_item_was_submitted(server: Scripted, submit_many) -> None:
    server.on("POST", PATH, problem(401, "unauthenticated", "invalid token"))
    with pytest.raises(errors.Unauthenticated):
        await submit_many(items(5000))
    assert len(server.asked) <= 4


async def test_the_callers_own_error(server: Scripted, submit_many) -> None:
    server.on("POST", PATH, echo)

    def broken() -> Iterator[wire.BatchItem]:
        yield from items(3)
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await submit_many(broken())


async def test_the_server_is_gone(server: Scripted, submit_many) -> None:
    server.url = "http://127.0.0.1:9"
    with pytest.raises(Unreachable, match="Connection refused"):
        await submit_many(items(5))
