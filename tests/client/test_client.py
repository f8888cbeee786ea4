from __future__ import annotations

import math
import socket
from typing import Any

import msgspec
import pytest

from mainspring import wire
from mainspring.client import AsyncClient, Client, Server, Unreachable, WaitTimedOut
from mainspring.domain import errors
from mainspring.domain.job import JobSpec, ShellTask
from tests.support.scripted_server import (
    EXECUTION_ID,
    T0,
    Asked,
    Reply,
    Scripted,
    event,
    events,
    execution,
    fires,
    job,
    problem,
    running,
)

pytestmark = pytest.mark.anyio

ONE = f"/api/v1/executions/{EXECUTION_ID}"


async def test_requests_carry_the_token_and_the_body(server: Scripted, client: AsyncClient) -> None:
    server.on("POST", "/api/v1/jobs", Reply(job(), 201))
    spec = {"name": "hello", "task": {"kind": "shell", "argv": ["echo", "hi"]}}
    assert await client.create_job(spec) == job()
    asked = server.last()
    assert asked.headers["authorization"] == "Bearer secret"
    assert asked.headers["user-agent"].startswith("mainspring/")
    assert asked.json() == spec
    typed = JobSpec(name="hello", task=ShellTask(argv=("echo", "hi")))
    assert await client.create_job(typed) == job()
    assert msgspec.convert(server.last().json(), JobSpec) == typed


async def test_lists_send_only_given_parameters(server: Scripted, client: AsyncClient) -> None:
    server.on("GET", "/api/v1/executions", Reply(wire.Page(items=[execution()], next_cursor="c2")))
    page = await client.executions(job="hello", state=["failed", "lost"], limit=7)
    assert page.items == [execution()]
    assert page.next_cursor == "c2"
    assert server.last().query == {"job": ["hello"], "state": ["failed", "lost"], "limit": ["7"]}


async def test_refs_are_quoted(server: Scripted, client: AsyncClient) -> None:
    server.on("GET", "/api/v1/jobs/a%2Fb%3Fc", Reply(job()))
    assert await client.job("a/b?c") == job()
    for ref in ("", ".", ".."):
        with pytest.raises(errors.NotFound):
            await client.job(ref)


async def test_the_other_routes(server: Scripted, client: AsyncClient) -> None:
    server.on("DELETE", "/api/v1/jobs/hello", Reply(status=204))
    await client.delete_job("hello")
    server.on("GET", "/api/v1/jobs/hello/fires", Reply(fires()))
    assert len((await client.fires("hello", count=3, after=T0)).fires) == 3
    assert server.last().query == {"count": ["3"], "after": ["2026-11-15T12:00:05+00:00"]}
    server.on("POST", "/api/v1/executions:batch", Reply(wire.BatchAnswer(items=[wire.Submitted(status=201)])))
    answer = await client.submit([wire.BatchItem(job="hello", key="k")])
    assert answer.items[0].status == 201
    assert server.last().json() == {"items": [{"job": "hello", "key": "k"}]}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.Invalid),
        (401, errors.Unauthenticated),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (409, errors.Conflict),
        (412, errors.Conflict),
        (413, errors.TooLarge),
        (422, errors.Invalid),
        (429, errors.TooMany),
        (503, errors.Unavailable),
        (500, errors.MainspringError),
    ],
)
async def test_problem_documents_become_errors(
    server: Scripted, client: AsyncClient, status: int, kind: type[errors.MainspringError]
) -> None:
    one = {"pointer": "/schedule/cron", "message": "hour is 0-23", "hint": "write 0 2 * * *"}
    server.on("GET", "/api/v1/jobs/hello", problem(status, "some_code", "it is wrong", [one]))
    with pytest.raises(errors.MainspringError) as raised:
        await client.job("hello")
    assert type(raised.value) is kind
    assert (raised.value.message, raised.value.code) == ("it is wrong", "some_code")
    assert raised.value.problems == (errors.Problem("/schedule/cron", "hour is 0-23", "write 0 2 * * *"),)
    assert str(raised.value) == "it is wrong: /schedule/cron: hour is 0-23 (write 0 2 * * *)"


async def test_another_server_is_recognised(server: Scripted, client: AsyncClient) -> None:
    page = Reply(b"<html>not here</html>", 404, "text/html")
    server.on("GET", "/api/v1/jobs/hello", page)
    with pytest.raises(errors.MainspringError, match="is it a Mainspring server") as raised:
        await client.job("hello")
    assert raised.value.code == "bad_answer"
    page.status = 200
    with pytest.raises(errors.MainspringError, match="is it a Mainspring server"):
        await client.job("hello")
    page.status = 502
    with pytest.raises(Unreachable, match="a proxy responded with 502"):
        await client.job("hello")
    server.on("GET", ONE + "/logs", Reply(b"{}"))
    with pytest.raises(errors.MainspringError, match="no event stream"):
        [chunk async for chunk in client.follow_logs(EXECUTION_ID)]


async def test_without_a_server_requests_and_streams_are_unreachable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        async with AsyncClient(server=Server(url, None, "MAINSPRING_URL")) as client:
            with pytest.raises(Unreachable, match=f"{url} .from MAINSPRING_URL") as raised:
                await client.jobs()
            assert raised.value.code == "unreachable"
            with pytest.raises(Unreachable):
                await anext(client.feed())
            with pytest.raises(Unreachable):
                await anext(client.follow_logs(EXECUTION_ID))


async def test_last_is_resolved_by_the_server(server: Scripted, client: AsyncClient) -> None:
    none_yet = problem(404, "not_found", "@last: there are no executions yet")
    server.on("GET", "/api/v1/executions:last", [none_yet, Reply(execution())])
    server.on("GET", ONE, Reply(execution()))
    with pytest.raises(errors.NotFound, match="no executions yet"):
        await client.execution("@last")
    assert await client.execution("@last") == execution()


async def test_wait_polls_until_final_and_bridges_a_restart(server: Scripted, client: AsyncClient) -> None:
    away = problem(503, "unavailable", "the database is away")
    server.on("GET", ONE, [Reply(running()), Reply(running()), away, Reply(execution())])
    assert (await client.wait(EXECUTION_ID)).state == "succeeded"
    assert [asked.query.get("wait") for asked in server.asked] == [None, ["30s"], ["30s"], ["30s"]]


async def test_wait_times_out_with_the_current_state(server: Scripted, client: AsyncClient) -> None:
    server.on("GET", ONE, Reply(running()))
    with pytest.raises(WaitTimedOut, match="still running") as raised:
        await client.wait(EXECUTION_ID, timeout_s=0.2)
    assert raised.value.execution == running()
    # On a busy machine the first answer may take all of the time, and there is nothing left to wait for.
    waits = [asked.query["wait"][0] for asked in server.asked[1:]]
    assert all(float(wait.removesuffix("s")) <= 0.2 for wait in waits)


async def test_wait_for_an_unknown_execution_fails_at_once(server: Scripted, client: AsyncClient) -> None:
    server.on("GET", ONE, problem(503, "unavailable", "the database is away"))
    with pytest.raises(errors.Unavailable):
        await client.wait(EXECUTION_ID)
    assert len(server.asked) == 1


def chunk(text: str, seq: int = 1, **changes: Any) -> wire.LogChunk:
    return wire.LogChunk(**{"attempt": 1, "seq": seq, "stream": "stdout", "text": text, **changes})


async def test_output_is_followed_across_a_broken_stream(server: Scripted, client: AsyncClient) -> None:
    first = [
        b": keep-alive\n\n",
        event("chunk", chunk("one\n"), "1.1"),
        event("chunk", chunk("tw", 2), "1.2"),
    ]
    broken = event("chunk", chunk("lost", 3), "1.3")[:-1]
    rest = [event("chunk", chunk("o\n", 3), "1.3"), event("end", {"state": "succeeded"})]
    server.on("GET", ONE + "/logs", [events(*first, broken), events(*rest)])
    text = "".join([found.text async for found in client.follow_logs(EXECUTION_ID)])
    assert text == "one\ntwo\n"
    first_ask, second_ask = server.asked
    assert first_ask.query == {"follow": ["true"]}
    assert second_ask.query == {"follow": ["true"], "place": ["1.2"]}
    assert second_ask.headers["last-event-id"] == "1.2"


async def test_events_may_be_cut_anywhere_and_hold_any_text(server: Scripted, client: AsyncClient) -> None:
    said = "grün\r\n\0 data: x\n\n  "
    whole = event("chunk", chunk(said), "1.1") + event("end", {})
    server.on("GET", ONE + "/logs", lambda _: events(*(whole[i : i + 1] for i in range(len(whole)))))
    assert [found.text async for found in client.follow_logs(EXECUTION_ID)] == [said]


async def test_the_feed_reconnects_after_a_restart(server: Scripted, client: AsyncClient) -> None:
    other = event("unknown", {"new": "kind"})
    server.on(
        "GET",
        "/api/v1/stream",
        [
            events(event("execution", running(), "7")),
            problem(503, "unavailable", "away"),
            events(other, event("execution", execution(), "8")),
        ],
    )
    feed = client.feed()
    assert [(await anext(feed)).state, (await anext(feed)).state] == ["running", "succeeded"]
    await feed.aclose()
    assert [asked.headers.get("last-event-id") for asked in server.asked] == [None, "7", "7"]


async def test_the_feed_needs_a_scope(server: Scripted, client: AsyncClient) -> None:
    server.on("GET", "/api/v1/stream", problem(401, "unauthenticated", "no valid token"))
    with pytest.raises(errors.Unauthenticated):
        await anext(client.feed())


async def test_the_sync_client_works_where_a_loop_runs(server: Scripted) -> None:
    polls = [Reply(running()), Reply(execution())]
    server.on("GET", ONE, polls)
    server.on("GET", ONE + "/logs", events(event("chunk", chunk("a")), event("chunk", chunk("b")), event("end", {})))
    server.on("POST", "/api/v1/jobs/hello/trigger", lambda asked: Reply(running(params=asked.json()["params"])))
    with Client(server=Server(server.url)) as client:
        assert client.trigger("hello", wire.RunNow(params={"n": 1})).params == {"n": 1}
        assert client.wait(EXECUTION_ID, timeout_s=math.inf).state == "succeeded"
        assert [found.text for found in client.follow_logs(EXECUTION_ID)] == ["a", "b"]
        assert next(iter(client.follow_logs(EXECUTION_ID))).text == "a"
        with pytest.raises(errors.NotFound):
            client.job("unknown")
        client.close()


def test_both_clients_offer_the_same_calls() -> None:
    own = {"aclose", "close"}
    offered = [{name for name in dir(kind) if not name.startswith("_")} - own for kind in (AsyncClient, Client)]
    assert offered[0] == offered[1]


async def test_without_a_token_no_authorization_is_sent(server: Scripted) -> None:
    def answer(asked: Asked) -> Reply:
        assert "authorization" not in asked.headers
        return Reply(job())

    server.on("GET", "/api/v1/jobs/hello", answer)
    async with AsyncClient(server=Server(server.url)) as client:
        await client.job("hello")
