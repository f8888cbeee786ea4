"""`str()` of client errors: pointer, message and hint of each problem, in a bounded number."""

from __future__ import annotations

import pytest

from mainspring.client import AsyncClient
from mainspring.domain.errors import MAX_LISTED, Invalid, Problem, invalid
from tests.conftest import Cluster
from tests.support.scripted_server import Scripted, problem

pytestmark = pytest.mark.anyio


async def test_a_wrong_field_is_named_with_a_remedy(cluster: Cluster) -> None:
    async with cluster.client() as client:
        with pytest.raises(Invalid) as raised:
            await client.create_job({"name": "a", "task": {"kind": "noop"}, "retires": 3})
        said = str(raised.value)
        assert "/retires" in said and "unknown field" in said and "did you mean 'retries'?" in said
        with pytest.raises(Invalid) as raised:
            await client.create_job({"name": "a b", "task": {"kind": "noop"}, "queue": "NO", "timeout": "soon"})
        said = str(raised.value)
        assert all(pointer in said for pointer in ("/name", "/queue", "/timeout")), said
        assert "letters, digits" in said, "the hint"
        assert len(raised.value.problems) == 3 and "/queue" not in raised.value.message


async def test_many_problems_are_bounded(client: AsyncClient, server: Scripted) -> None:
    wrong = [{"pointer": f"/items/{n}", "message": f"wrong {n}", "hint": "right it"} for n in range(100)]
    server.on("GET", "/api/v1/jobs/hello", problem(422, "invalid", "the request is invalid", wrong))
    with pytest.raises(Invalid) as raised:
        await client.job("hello")
    said = str(raised.value)
    assert said.startswith("the request is invalid: /items/0: wrong 0 (right it); /items/1")
    assert said.endswith(f"/items/{MAX_LISTED - 1}: wrong {MAX_LISTED - 1} (right it); and {100 - MAX_LISTED} more")


def test_nothing_is_said_twice() -> None:
    assert str(invalid("/at", "not an instant", hint="write 2026")) == "/at: not an instant (write 2026)"
    assert str(invalid("", "not an instant")) == "not an instant"
    assert str(Invalid("bad: /a: b", problems=(Problem("/a", "b"),))) == "bad: /a: b"
    assert str(Invalid("alone")) == "alone"
    two = (Problem("/a", "first", "x"), Problem("/b", "second"))
    assert str(Invalid("first", problems=two)) == "/a: first (x); /b: second"
