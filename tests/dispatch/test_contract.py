"""The messages between workers and server: recorded by version, and what really travels fits the record."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import httpx2
import msgspec
import pytest

from mainspring import wire
from mainspring.codec import encode
from mainspring.worker.transport.api_client import ApiAddress
from tests.conftest import Cluster
from tests.support.remote_worker import remote
from tools.protocol import MESSAGES, breaking, recorded, schemas, without_bounds

pytestmark = pytest.mark.anyio

_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int,
    "number": (int, float),
}  # fmt: skip


def misfits(value: Any, schema: dict[str, Any], defs: dict[str, Any], at: str = "") -> Iterator[str]:
    """Where a value does not fit: the words of JSON Schema that the record uses for shapes."""
    if "$ref" in schema:
        yield from misfits(value, defs[schema["$ref"].rpartition("/")[2]], defs, at)
    kind = "boolean" if isinstance(value, bool) else schema.get("type")
    if kind is not None and (not isinstance(value, _TYPES[kind]) or kind != schema.get("type", kind)):
        yield f"{at}: not of type {schema['type']}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: none of the words"
    if "anyOf" in schema and all(any(misfits(value, one, defs, at)) for one in schema["anyOf"]):
        yield f"{at}: none of the choices"
    if isinstance(value, dict):
        known = schema.get("properties", {})
        yield from (f"{at}/{name}: missing" for name in schema.get("required", []) if name not in value)
        for name, item in value.items():
            wanted = known.get(name, schema.get("additionalProperties", {}))
            yield from [f"{at}/{name}: unknown"] if wanted is False else misfits(item, wanted, defs, f"{at}/{name}")
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            yield f"{at}: {len(value)} items"
        wanted = schema.get("prefixItems", [])
        rest = schema.get("items") or {}
        for place, item in enumerate(value):
            yield from misfits(item, wanted[place] if place < len(wanted) else rest, defs, f"{at}/{place}")


def fits(message: str, body: Any) -> None:
    record = recorded()[wire.PROTOCOL]
    assert list(misfits(body, record["messages"][message], record["$defs"], message)) == []


def test_a_change_of_a_message_needs_a_new_version() -> None:
    record = recorded()
    assert wire.PROTOCOL in record, "record the new version: python -m tools.protocol"
    wrong = breaking(without_bounds(record[wire.PROTOCOL]), without_bounds(schemas()))
    assert not wrong, f"protocol {wire.PROTOCOL} is in use and says otherwise: give it a new version"
    assert record[wire.PROTOCOL] == schemas(), "what may be left out was added; record it: python -m tools.protocol"
    assert {kind.__name__ for kind in MESSAGES} == set(record[wire.PROTOCOL]["messages"])


def planted(change: Any) -> list[str]:
    now = copy.deepcopy(schemas())
    change(now["$defs"])
    return breaking(schemas(), now)


def test_changes_that_others_could_not_read_are_found() -> None:
    def renamed(defs: dict[str, Any]) -> None:
        defs["Polled"]["properties"]["work"] = defs["Polled"]["properties"].pop("executions")

    def demanded(defs: dict[str, Any]) -> None:
        defs["Results"]["required"].append("no_retry")

    def shortened(defs: dict[str, Any]) -> None:
        defs["Result"]["prefixItems"].pop()

    def retyped(defs: dict[str, Any]) -> None:
        defs["Assignment"]["prefixItems"][1] = {"type": "string"}

    def narrowed(defs: dict[str, Any]) -> None:
        defs["Result"]["prefixItems"][2]["enum"].remove("lost")

    for change in (renamed, demanded, shortened, retyped, narrowed):
        assert planted(change), change.__name__


def test_what_may_be_left_out_can_be_added() -> None:
    def added(defs: dict[str, Any]) -> None:
        defs["Definition"]["properties"]["colour"] = {"type": "string", "default": ""}
        defs["Assignment"]["prefixItems"].append({"type": "string", "default": ""})
        defs["Result"]["prefixItems"].append({"default": None})
        defs["Result"]["maxItems"] += 1
        del defs["Poll"]["description"]

    assert planted(added) == []


@pytest.mark.requirement(46)
async def test_dispatch_and_result_travel_as_recorded(cluster: Cluster) -> None:
    spec = {
        "name": "contract", "queue": "contract", "estimated_duration": "20m", "retries": {"max": 0},
        "task": {"kind": "shell", "argv": ["echo", "{{params.word}}"]}, "params": {"word": {"type": "string"}},
    }  # fmt: skip
    headers = ApiAddress(cluster.url, cluster.worker_token).headers
    async with (
        cluster.client() as client,
        httpx2.AsyncClient(base_url=f"{cluster.url}/api/v1/worker/", headers=headers, trust_env=False) as http,
        remote(cluster, queue="contract") as worker,
    ):

        async def says(path: str, body: msgspec.Struct, answer: str) -> Any:
            fits(type(body).__name__, msgspec.json.decode(encode(body)))
            given = (await http.post(path, content=encode(body))).json()
            fits(answer, given)
            return given

        job = await client.create_job(spec)
        execution = await client.trigger("contract", wire.RunNow(params={"word": "hi"}))
        polled = await says("poll", wire.Poll(session_id=worker.session_id, free=1, wait_s=10), "Polled")
        (dispatch,) = polled["executions"]
        execution_id, attempt, name, job_id, fire_at, params, credential = dispatch
        definition = polled["definitions"][name]
        assert (execution_id, job_id, attempt) == (str(execution.execution_id), str(job.job_id), 1)
        assert credential == "", "an older worker, whose session has no key, has no use for one"
        assert params == {"word": "hi"} and fire_at == msgspec.to_builtins(execution)["fire_at"]
        assert definition["task"]["argv"] == ["echo", "{{params.word}}"]
        assert definition["estimated_duration"] == "20m"
        async with cluster.database.connection() as connection:
            shard = await connection.fetchval("SELECT shard FROM jobs WHERE job_id = $1", job.job_id)
        assert definition["shard"] == shard

        beat = wire.Heartbeat(session_id=worker.session_id, running=[execution.execution_id])
        await says("heartbeat", beat, "Beat")
        result = wire.Result(
            execution_id=execution.execution_id, attempt=1, outcome="failed", duration_ms=12, exit_code=2, error="no"
        )
        output = wire.Output(execution_id=execution.execution_id, attempt=1, seq=0, stream="stdout", data=b"hi\n")
        told = wire.Results(session_id=worker.session_id, results=[result], output=[output])
        assert (await says("results", told, "Settled"))["stale"] == []
        found = await client.execution(execution.execution_id)
        assert (found.state, found.duration_ms, found.attempt, found.error) == ("failed", 12, 1, "no")
        assert [chunk.text for chunk in (await client.logs(execution.execution_id)).chunks] == ["hi\n"]

        register = wire.Register(name="n", host="h", version="1", slots=1, queues=["contract"], kinds=["noop"])
        session = await says("sessions", register, "Registered")
        fits("Goodbye", {"session_id": session["session_id"]})
        with pytest.raises(AssertionError):
            fits("Results", {"session_id": session["session_id"], "results": [[execution_id, "1", "failed", 1]]})
