"""Invalid input is rejected with pointer, message and hint, and nothing is written."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.store.db import Database
from tests.conftest import Cluster

JOBS = "/api/v1/jobs"
EXECUTIONS = "/api/v1/executions"
TAKEN = "taken"


def spec(**changes: Any) -> dict[str, Any]:
    return {"name": "new", "task": {"kind": "noop"}, **changes}


def shell(*argv: str, **more: Any) -> dict[str, Any]:
    return spec(task={"kind": "shell", "argv": list(argv), **more})


@dataclass(frozen=True)
class Bad:
    """One bad request, and what its answer must say. `says` and `hint` are parts of the text."""

    name: str
    status: int
    code: str
    method: str = "POST"
    path: str = JOBS
    body: Any = None
    content: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    pointer: str | None = None
    says: str = ""
    hint: str = ""


def unfit(name: str, body: Any, pointer: str, says: str, hint: str = "", *, code: str = "invalid", **more: Any) -> Bad:
    return Bad(name, 422, code, body=body, pointer=pointer, says=says, hint=hint, **more)


def daily(**more: Any) -> dict[str, Any]:
    return spec(schedule={"cron": "0 9 * * *", **more})


def once(**more: Any) -> dict[str, Any]:
    return spec(schedule={"at": "2090-01-01T00:00:00Z", **more})


def nightly(**more: Any) -> dict[str, Any]:
    return {"schedule": {"cron": "0 2 * * *"}, **more}


CALENDAR: dict[str, Any] = {"method": "PUT", "path": "/api/v1/calendars/new"}
BLACKOUT: dict[str, Any] = {"path": "/api/v1/blackouts"}
WINDOW = {"start_at": "2090-01-01T00:00:00Z", "end_at": "2090-01-01T04:00:00Z"}
TRIGGER = f"{JOBS}/{TAKEN}/trigger"
NOWHERE = "there is no"

TABLE = [
    # What a job may say
    unfit("unknown field", spec(prioritty=3), "/prioritty", "unknown field", "did you mean 'priority'?"),
    unfit(
        "unknown field of the task", shell("x", ev={}), "/task/ev", "unknown field 'ev'", "did you mean 'env'?"
    ),
    unfit(
        "unknown field like none", spec(qqqqqq=3), "/qqqqqq", "unknown field", "known fields: "
    ),
    unfit("missing field", {"name": "new"}, "/", "missing required field `task`"),
    unfit("wrong type", spec(priority="high"), "/priority", "must be a whole number, got a string"),
    unfit("priority 11", spec(priority=11), "/priority", "at most 10, got 11", "at most 10"),
    unfit("priority below 0", spec(priority=-1), "/priority", "at least 0, got -1", "at least 0"),
    unfit("unknown task kind", spec(task={"kind": "shel"}), "/task/kind", "shel"),
    unfit("bad name", spec(name="has space"), "/name", "not a job name", "letters, digits"),
    unfit("bad queue", spec(queue="No"), "/queue", "not a queue name", "lower case"),
    unfit("bad timeout", spec(timeout="soon"), "/timeout", "'soon' is not a duration", "10m"),
    unfit("no time at all", spec(timeout=0), "/timeout", "too short", "positive"),
    unfit("too many retries", spec(retries={"max": 1001}), "/retries/max", "at most 1000", "at most 1000"),
    unfit(
        "unknown jitter", spec(retries={"jitter": "some"}), "/retries/jitter", "some"
    ),
    unfit(
        "at_most_once with retries", spec(delivery="at_most_once"), "/retries/max", "cannot be retried", '{"max": 0}'
    ),
    # Tasks
    unfit("no argv", shell(), "/task/argv", "must not be empty", "at least one entry"),
    unfit("empty program", shell(""), "/task/argv/0", "empty", "such as echo"),
    unfit("NUL in argv", shell("echo", "a\0b"), "/task/argv/1", "NUL", "remove it"),
    unfit("NUL in the directory", shell("echo", cwd="/\0"), "/task/cwd", "NUL", "remove it"),
    unfit("NUL in the description", spec(description="\0"), "/description", "NUL", "remove it"),
    unfit("NUL in metadata", spec(metadata={"a": ["b", "\0"]}), "/metadata/a/1", "NUL", "remove it"),
    unfit("NUL in a name", spec(metadata={"\0": 1}), "/metadata", "NUL", "remove it"),
    unfit("reserved variable", shell("x", env={"MAINSPRING_X": "1"}), "/task/env", "can't be set", "are reserved"),
    unfit("two words for a shell", shell("a", "b", shell=True), "/task/argv", "one script", "echo"),
    unfit(
        "unknown template name", shell("echo", "{{fire_att}}"), "/task/argv/1", "{{fire_att}} is not known",
        "did you mean {{fire_at}}?",
    ),
    unfit(
        "unknown template name in env", shell("x", env={"A": "{{zzz}}"}), "/task/env/A", "not known", "params.<name>"
    ),
    unfit(
        "a template in a script", shell("echo {{params.who}}", shell=True), "/task/argv/0", "run its value as code",
        '"env": {"WHO": "{{params.who}}"}',
    ),
    unfit(
        "a template in the code of an interpreter", shell("sh", "-c", "echo {{fire_at}}"), "/task/argv/2", "as code",
        '"$FIRE_AT"',
    ),
    # Schedules
    unfit(
        "bad cron", spec(schedule={"cron": "0 25 * * *"}), "/schedule/cron", "hour", "", code="bad_cron"
    ),
    unfit(
        "past time", spec(schedule={"at": "2020-01-01T00:00:00Z"}), "/schedule/at", "past", "", code="past_time"
    ),
    unfit(
        "unknown zone", spec(schedule={"cron": "0 2 * * *", "timezone": "Europe/Berln"}), "/schedule/timezone",
        "Europe/Berln", "Europe/Berlin", code="unknown_zone",
    ),
    unfit(
        "end before start",
        spec(schedule={"every": 5, "start_at": "2090-01-02T00:00:00Z", "end_at": "2090-01-01T00:00:00Z"}),
        "/schedule/end_at", "", "", code="bad_window",
    ),
    unfit("bad interval", spec(schedule={"every": "1 fortnight"}), "/schedule/every", "", "", code="bad_duration"),
    unfit("two schedules", spec(schedule={"every": 5, "cron": "* * * * *"}), "/schedule", "", "", code="bad_schedule"),
    unfit(
        "a schedule that never fires", spec(schedule={"cron": "0 0 30 2 *"}), "/schedule/cron", "", "",
        code="never_fires",
    ),
    unfit("no schedule at all", spec(schedule=[]), "/schedule", "empty", "at least one", code="bad_schedule"),
    unfit(
        "bad member", spec(schedule=[{"every": 5}, {"cron": "0 25 * * *"}]), "/schedule/1/cron", "hour", code="bad_cron"
    ),
    unfit(
        "unknown field of a member", spec(schedule=[{"every": 5}, {"crom": "* * * * *"}]), "/schedule/1/crom",
        "unknown field", "did you mean 'cron'?",
    ),
    unfit("a text for a schedule", spec(schedule="0 2 * * *"), "/schedule", "got a string", "write an object"),
    unfit("unknown calendar", daily(calendar="dyas"), "/schedule/calendar", "no calendar 'dyas'", "calendars set dyas",
          code="unknown_calendar"),
    unfit("roll without calendar", daily(roll="next"), "/schedule/roll", "without calendar", "name the calendar",
          code="bad_schedule"),
    unfit("unknown roll", daily(calendar="days", roll="on"), "/schedule/roll", "on"),
    unfit("calendar beside at", once(calendar="days"), "/schedule/calendar", "beside at", "remove",
          code="bad_schedule"),
    unfit("jitter beside at", once(jitter=5), "/schedule/jitter", "beside at", "remove", code="bad_schedule"),
    unfit("max_fires beside at", once(max_fires=5), "/schedule/max_fires", "beside at", "remove", code="bad_schedule"),
    unfit("bad jitter", daily(jitter="some"), "/schedule/jitter", "'some'", "30s", code="bad_duration"),
    unfit("jitter of a week", daily(jitter="7d"), "/schedule/jitter", "not possible", "24 hours", code="bad_duration"),
    unfit("jitter below 0", daily(jitter=-1), "/schedule/jitter", "", "", code="bad_duration"),
    unfit("two jitters", spec(schedule=[{"every": 5, "jitter": 1}, {"every": 7, "jitter": 2}]), "/schedule",
          "one jitter", "the same", code="bad_schedule"),
    unfit("no fires at all", daily(max_fires=0), "/schedule/max_fires", "not possible", "10,000", code="bad_schedule"),
    unfit("endless fires", daily(max_fires=10**6), "/schedule/max_fires", "not possible", "end_at",
          code="bad_schedule"),
    unfit("a calendar that leaves nothing", daily(calendar="closed"), "/schedule/cron", "never fires", "calendar",
          code="never_fires"),
    unfit("a bad union in a preview", {"schedule": [{"every": 5}, {"every": 0}]}, "/schedule/1/every", "not possible",
          code="bad_duration", path="/api/v1/schedules:preview"),
    unfit("a bad union in a change", {"schedule": [{"every": 5}, {}]}, "/schedule/1", "exactly one",
          code="bad_schedule",
          method="PATCH", path=f"{JOBS}/{TAKEN}"),
    # Calendars
    unfit("bad rule", {"rules": ["* * SAT", "25 13 *"]}, "/rules/1", "month", code="bad_calendar", **CALENDAR),
    unfit("a rule of two fields", {"rules": ["25 12"]}, "/rules/0", "three fields", "25 12 *", code="bad_calendar",
          **CALENDAR),
    unfit("bad date", {"dates": ["2026-02-30"]}, "/dates/0", "date", **CALENDAR),
    unfit("unknown mode", {"mode": "only"}, "/mode", "only", **CALENDAR),
    unfit("only no day", {"mode": "include"}, "/dates", "no job fires", "give dates", code="bad_calendar",
          **CALENDAR),
    unfit("unknown field of a calendar", {"date": []}, "/date", "unknown field", "did you mean 'dates'?", **CALENDAR),
    unfit("bad calendar name", {}, "/name", "not a calendar name", "letters", method="PUT",
          path="/api/v1/calendars/a%20b"),
    Bad("unknown calendar by name", 404, "not_found", "GET", "/api/v1/calendars/nowhere", says=NOWHERE),
    Bad("versions of no calendar", 404, "not_found", "GET", "/api/v1/calendars/nowhere/versions", says=NOWHERE),
    Bad("deleting no calendar", 404, "not_found", "DELETE", "/api/v1/calendars/nowhere", says=NOWHERE),
    Bad("deleting one in use", 409, "in_use", "DELETE", "/api/v1/calendars/days", pointer="/name",
          says="in use by follower",
        hint="remove it from"),
    unfit("too many days", None, "/count", "out of range", "400", method="GET",
          path="/api/v1/calendars/days/days?count=401"),
    unfit("bad cursor of versions", None, "/cursor", "invalid cursor", "next_cursor", method="GET",
          path="/api/v1/calendars/days/versions?cursor=x"),
    # Blackouts
    unfit("a blackout of nothing", {}, "/", "start_at and end_at, or a schedule", "cron", code="bad_blackout",
          **BLACKOUT),
    unfit("both kinds", {**WINDOW, "schedule": {"cron": "0 2 * * *"}}, "/", "or a schedule", "", code="bad_blackout",
          **BLACKOUT),
    unfit("no end", {"start_at": "2090-01-01T00:00:00Z"}, "/end_at", "both", "add it", code="bad_blackout", **BLACKOUT),
    unfit("an end before the start", {**WINDOW, "end_at": "2089-01-01T00:00:00Z"}, "/end_at", "not after", "later",
          code="bad_window", **BLACKOUT),
    unfit("a window that is over", {"start_at": "2019-01-01T00:00:00Z", "end_at": "2020-01-01T00:00:00Z"}, "/end_at",
          "past", "later", code="past_time", **BLACKOUT),
    unfit(
        "a start without offset", {**WINDOW, "start_at": "2089-01-01T00:00:00"}, "/start_at", "no UTC offset", "add Z",
        **BLACKOUT,
    ),
    unfit("how long is missing", {"schedule": {"cron": "0 2 * * *"}}, "/lasts", "required", "2h", code="bad_blackout",
          **BLACKOUT),
    unfit("how long is unclear", nightly(lasts="long"), "/lasts", "'long'", "2h", code="bad_duration", **BLACKOUT),
    unfit("for a year", nightly(lasts="365d"), "/lasts", "out of range", "31 days", code="bad_duration", **BLACKOUT),
    unfit("without an end", nightly(lasts="24h"), "/lasts", "never end", "pause", code="bad_blackout", **BLACKOUT),
    unfit("how long of a window", {**WINDOW, "lasts": "2h"}, "/lasts", "only valid with a schedule", "end_at",
          code="bad_blackout", **BLACKOUT),
    unfit("once by a schedule", {"schedule": {"at": "2090-01-01T00:00:00Z"}, "lasts": 5}, "/schedule/at",
          "not supported", "start_at", code="bad_blackout", **BLACKOUT),
    unfit("a calendar in a blackout", {"schedule": [{"every": "1d", "calendar": "days"}], "lasts": 5},
          "/schedule/0/calendar", "not supported", "remove", code="bad_blackout", **BLACKOUT),
    unfit("a blackout with a bad cron", {"schedule": {"cron": "x"}, "lasts": 5}, "/schedule/cron", "", code="bad_cron",
          **BLACKOUT),
    unfit("a blackout of no queue", {**WINDOW, "queue": "No"}, "/queue", "not a queue", "lower", **BLACKOUT),
    unfit("a blackout of no job", {**WINDOW, "job": "nowhere"}, "/job", "there is no job", "name or an id", **BLACKOUT),
    unfit("a blackout of a queue and a job", {**WINDOW, "job": TAKEN, "queue": "short"}, "/job", "not both", "two",
          **BLACKOUT),
    Bad("deleting no blackout", 404, "not_found", "DELETE", f"/api/v1/blackouts/{uuid4()}", says=NOWHERE),
    Bad("deleting what is no id", 404, "not_found", "DELETE", "/api/v1/blackouts/x", says=NOWHERE),
    # Bodies
    Bad("not JSON", 400, "not_json", content=b"name: new", says="not JSON"),
    Bad("not UTF-8", 400, "not_json", content=b'{"name": "\xff"}', says="not JSON"),
    Bad("deep JSON", 400, "too_deep", content=b'{"metadata":' + b"[" * 40 + b"]" * 40 + b"}", says="32 levels"),
    Bad("a bomb of brackets", 400, "too_deep", content=b"[" * 900_000, says="32 levels"),
    Bad("a bomb of quotes", 400, "not_json", content=b'{"name":"' + b'\\"' * 400_000 + b"[" * 40, says="not JSON"),
    Bad("huge body", 413, "too_large", content=b" " * 1_000_001, says="1,000,001 bytes"),
    # Triggers and batches
    unfit("NUL in params", {"params": {"a": "\0"}}, "/params/a", "NUL", "remove it", path=TRIGGER),
    unfit("NUL in a key", {"key": "\0"}, "/key", "NUL", "remove it", path=TRIGGER),
    unfit("an instant without offset", {"at": "2090-01-01T00:00:00"}, "/at", "no UTC offset", "add Z", path=TRIGGER),
    unfit("empty batch", {"items": []}, "/items", "must not be empty", "at least one", path=EXECUTIONS + ":batch"),
    unfit(
        "unknown field in a batch", {"items": [{"job": "a"}, {"jb": "b"}]}, "/items/1/jb", "unknown field",
        "did you mean 'job'?", path=EXECUTIONS + ":batch",
    ),
    # Changes
    unfit(
        "bad change", {"priority": 11}, "/priority", "at most 10, got 11", "at most 10", method="PATCH",
        path=f"{JOBS}/{TAKEN}",
    ),
    unfit(
        "unknown field in a change", {"priorty": 1}, "/priorty", "unknown field", "did you mean 'priority'?",
        method="PATCH", path=f"{JOBS}/{TAKEN}",
    ),
    unfit("name removed", {"name": None}, "/", "`name`", method="PATCH", path=f"{JOBS}/{TAKEN}"),
    Bad(
        "duplicate name", 409, "name_taken", body=spec(name=TAKEN), pointer="/name", says="already", hint="another name"
    ),
    Bad(
        "duplicate name by a change", 409, "name_taken", method="PATCH", path=f"{JOBS}/other", body={"name": TAKEN},
        pointer="/name", says="already", hint="another name",
    ),
    # Who asks
    Bad("no token", 401, "unauthenticated", body=spec(), headers={"Authorization": ""}, says="Bearer"),
    Bad("wrong token", 401, "unauthenticated", body=spec(), headers={"Authorization": "Bearer ms_x"}, says="invalid"),
    Bad("wrong scheme", 401, "unauthenticated", body=spec(), headers={"Authorization": "Basic eDp5"}, says="Bearer"),
    # What is asked for
    Bad("unknown job", 404, "not_found", "GET", f"{JOBS}/nowhere", says=NOWHERE),
    Bad("unknown job id", 404, "not_found", "GET", f"{JOBS}/{uuid4()}", says=NOWHERE),
    Bad("no job name at all", 400, "bad_query", "GET", f"{JOBS}/%00", says="NUL"),
    Bad("deleting an unknown job", 404, "not_found", "DELETE", f"{JOBS}/nowhere", says=NOWHERE),
    Bad("unknown execution", 404, "not_found", "GET", f"{EXECUTIONS}/0197{str(uuid4())[4:]}", says=NOWHERE),
    Bad(
        "an id from the far future", 404, "not_found", "GET", f"{EXECUTIONS}/{'f' * 8}-ffff-8fff-afff-{'f' * 12}",
        says=NOWHERE,
    ),
    Bad("no execution id at all", 404, "not_found", "GET", f"{EXECUTIONS}/xyz", says="first 8 digits"),
    Bad("cancelling an unknown one", 404, "not_found", path=f"{EXECUTIONS}/{uuid4()}/cancel", says=NOWHERE),
    Bad("an unknown path", 404, "not_found", "GET", "/api/v1/nothing", says="no route at this path"),
    Bad("a method it does not take", 405, "method_not_allowed", "PUT", JOBS, says="method not allowed"),
    # Queries
    Bad("bad limit", 400, "bad_query", "GET", f"{JOBS}?limit=ten", says="whole number"),
    unfit(
        "limit too high", None, "/limit", "out of range", "between 1 and 500", method="GET",
        path=f"{JOBS}?limit=501",
    ),
    unfit("limit of nothing", None, "/limit", "out of range", "between 1", method="GET", path=f"{EXECUTIONS}?limit=0"),
    unfit("bad cursor", None, "/cursor", "invalid cursor", "next_cursor", method="GET", path=f"{EXECUTIONS}?cursor=x"),
    unfit(
        "bad state", None, "/state", "'done' is not a state", "succeeded", method="GET",
        path=f"{EXECUTIONS}?state=done",
    ),
    Bad("unknown query parameter", 400, "bad_query", "GET", f"{JOBS}?limt=5", says="known: limit"),
    Bad("bad instant", 400, "bad_query", "GET", f"{JOBS}/{TAKEN}/fires?after=noon", says="RFC 3339"),
    Bad(
        "instant without offset", 400, "bad_query", "GET", f"{JOBS}/{TAKEN}/fires?after=2026-01-01T00:00",
        says="add Z",
    ),
    Bad("bad wait", 400, "bad_query", "GET", f"{EXECUTIONS}/{uuid4()}?wait=long", says="wait:"),
    unfit(
        "bad place", None, "/place", "invalid log position", "previous answer unchanged", method="GET",
        path=f"{EXECUTIONS}/{uuid4()}/logs?place=x",
    ),
    unfit(
        "a place no log has", None, "/place", "invalid log position", "previous answer unchanged", method="GET",
        path=f"{EXECUTIONS}/{uuid4()}/logs?place=1.99999999999",
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
async def _jobs(cluster: Cluster) -> None:
    async with cluster.client() as client:
        await client.create_job(spec(name=TAKEN, schedule={"at": "2090-01-01T00:00:00Z"}))
        await client.create_job(spec(name="other"))
        await client.put_calendar("days", wire.CalendarDays())
        await client.put_calendar("closed", wire.CalendarDays(rules=["* * *"]))
        await client.create_job(daily(calendar="days") | {"name": "follower"})


@pytest.fixture
async def unwritten(cluster: Cluster, _jobs: None) -> AsyncIterator[None]:
    """The test changes nothing in the database."""
    before = await everything(cluster.database)
    yield
    assert await everything(cluster.database) == before


async def everything(database: Database) -> dict[str, str | None]:
    """A digest of the rows of each table, of the order of edits for shards (leases go on by themselves, and so does
    what the server measures, judges and records of refusals)."""
    async with database.connection() as connection:
        tables = await connection.fetch(
            "SELECT relname FROM pg_class WHERE relnamespace = 'mainspring'::regnamespace"
            " AND relkind IN ('r', 'p') AND NOT relispartition"
            " AND relname NOT IN ('measurements', 'alerts', 'rollup_progress')"
            " AND relname NOT LIKE 'queue_sample%' AND relname NOT LIKE 'audit%' ORDER BY 1"
        )
        found = {}
        for (table,) in tables:
            row = {"shards": "(t.shard, t.changes)", "schedulers": "t.scheduler_id"}.get(table, "t")
            found[table] = await connection.fetchval(
                f"SELECT count(*) || md5(string_agg({row}::text, '' ORDER BY {row}::text)) FROM {table} t"
            )
    assert {"jobs", "executions", "history", "schedules", "idempotency_keys", "sessions"} <= set(found)
    return found


def check(answer: httpx2.Response, bad: Bad) -> None:
    document = answer.json()
    assert (answer.status_code, document["code"]) == (bad.status, bad.code), document
    assert answer.headers["content-type"] == "application/problem+json"
    assert document["status"] == bad.status
    assert document["title"] and document["detail"]
    errors = document["errors"]
    assert bad.says.lower() in (document["detail"] + "".join(e["message"] for e in errors)).lower(), document
    if bad.pointer is not None:
        assert [e["pointer"] for e in errors] == [bad.pointer]
        assert bad.hint in errors[0]["hint"]
    if bad.status == 401:
        assert answer.headers["www-authenticate"] == "Bearer"


def _with_number(digits: bytes) -> bytes:
    return b'{"name": "new", "task": {"kind": "noop"}, "metadata": {"x": [' + digits + b"]}}"


TABLE += [
    Bad("20 digits", 422, "number_out_of_range", content=_with_number(b"9" * 20), says="64 bits", hint="string"),
    Bad("19 digits", 422, "number_out_of_range", content=_with_number(b"-9223372036854775809"), says="64 bits"),
    Bad("5,000 digits", 422, "number_out_of_range", content=_with_number(b"9" * 5000), says="64 bits"),
    Bad("1e400", 422, "invalid", content=_with_number(b"1e400"), says="out of range"),
    Bad("too many values", 413, "too_large", content=_with_number(b"[]," * 300_000 + b"1"), says="JSON values"),
    Bad("query digits", 400, "bad_query", "GET", f"{JOBS}?limit=" + "9" * 5000, says="whole number"),
    Bad("query 64 bits", 400, "bad_query", "GET", f"{JOBS}?limit={2**40}", says="out of range"),
    Bad("NUL in the query", 400, "bad_query", "GET", f"{JOBS}?cursor=a%00", says="NUL"),
    Bad("NUL in the path", 400, "bad_query", "GET", f"{JOBS}/a%00b", says="NUL"),
    Bad("cursor digits", 422, "invalid", "GET", f"{JOBS}/{TAKEN}/versions?cursor=" + "9" * 30, says="cursor"),
    Bad("cursor ²", 422, "invalid", "GET", f"{JOBS}/{TAKEN}/versions?cursor=²", says="cursor"),
    unfit("cpu digits", spec(resources={"cpu": "9" * 400}), "/resources/cpu", "more than 40 characters", "shorten it"),
    unfit("cpu number", spec(resources={"cpu": 1e300}), "/resources/cpu", "out of range"),
    unfit("a timeout of ages", spec(timeout="9" * 20 + "d"), "/timeout", "too long"),
]


@pytest.mark.parametrize("bad", TABLE, ids=lambda bad: bad.name)
async def test_it_is_refused_and_nothing_is_written(http: httpx2.AsyncClient, bad: Bad, unwritten: None) -> None:
    content = bad.content if bad.body is None else json.dumps(bad.body).encode()
    headers = {k: v for k, v in (http.headers | bad.headers).items() if v}
    async with httpx2.AsyncClient(base_url=http.base_url, headers=headers, trust_env=False) as asking:
        check(await asking.request(bad.method, bad.path, content=content), bad)


async def test_a_huge_body_without_a_length_is_refused_too(http: httpx2.AsyncClient, unwritten: None) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 100_000

    answer = await http.post(JOBS, content=chunks())
    assert "content-length" not in answer.request.headers
    check(answer, Bad("", 413, "too_large", says="limit of 1,000,000 bytes"))


async def test_a_false_length_does_not_get_more_in(cluster: Cluster, unwritten: None) -> None:
    """What the sender claims counts for nothing: only bytes do."""
    import asyncio

    reader, writer = await asyncio.open_connection("127.0.0.1", int(cluster.url.rpartition(":")[2]))
    head = (
        f"POST {JOBS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {cluster.token}\r\n"
        "Content-Length: 99999999999\r\n\r\n"
    )
    writer.write(head.encode())
    assert b" 413 " in await reader.readline()
    writer.close()


async def test_the_caret_shows_the_place_in_a_bad_cron(http: httpx2.AsyncClient, unwritten: None) -> None:
    answer = await http.post(JOBS, json=spec(schedule={"cron": "0 25 * * *"}))
    (error,) = answer.json()["errors"]
    shown = f"{error['message']}\n{error['hint']}".splitlines()
    at = next(n for n, line in enumerate(shown) if "0 25 * * *" in line)
    assert shown[at + 1].index("^") == shown[at].index("25")


async def test_all_problems_are_told_at_once(http: httpx2.AsyncClient, unwritten: None) -> None:
    answer = await http.post(JOBS, json=spec(name="a b", queue="Q", timeout="x", delivery="at_most_once"))
    assert [e["pointer"] for e in answer.json()["errors"]] == ["/name", "/queue", "/timeout", "/retries/max"]


async def test_another_tenants_things_do_not_exist(
    http: httpx2.AsyncClient, client: AsyncClient, neighbour: AsyncClient
) -> None:
    """By id, by name, in lists: as if they were not there."""
    theirs = await neighbour.create_job(spec(name="secret"))
    await neighbour.put_calendar("secret", wire.CalendarDays())
    blackout = await neighbour.add_blackout(wire.NewBlackout(schedule=ScheduleSpec(cron="0 2 * * *"), lasts="1h"))
    ran = await neighbour.trigger("secret", wire.RunNow(params={"a": 1}))
    job, execution = f"{JOBS}/{theirs.job_id}", f"{EXECUTIONS}/{ran.execution_id}"
    probes = [
        ("GET", job), ("GET", f"{JOBS}/secret"), ("PATCH", job), ("DELETE", job), ("POST", f"{job}/pause"),
        ("POST", f"{job}/resume"), ("POST", f"{job}/trigger"), ("GET", f"{job}/fires"), ("GET", f"{job}/executions"),
        ("GET", f"{EXECUTIONS}?job={theirs.job_id}"), ("GET", execution), ("GET", f"{execution}?wait=1s"),
        ("GET", f"{EXECUTIONS}/{str(ran.execution_id)[:18]}"), ("POST", f"{execution}/cancel"),
        ("GET", f"{execution}/logs"), ("GET", f"{execution}/logs?follow=true"),
        ("GET", "/api/v1/calendars/secret"), ("GET", "/api/v1/calendars/secret/versions"),
        ("GET", "/api/v1/calendars/secret/days"), ("DELETE", "/api/v1/calendars/secret"),
        ("DELETE", f"/api/v1/blackouts/{blackout.blackout_id}"),
    ]  # fmt: skip
    for method, path in probes:
        answer = await http.request(method, path, content=b"{}" if method in ("POST", "PATCH") else None)
        check(answer, Bad(path, 404, "not_found", says=NOWHERE))
    batch = await client.submit([wire.BatchItem(job=str(theirs.job_id)), wire.BatchItem(job="secret", key="k")])
    assert [item.status for item in batch.items] == [404, 404]
    assert all(job.name != "secret" for job in (await client.jobs(limit=500)).items)
    assert all(calendar.name != "secret" for calendar in (await client.calendars(limit=500)).items)
    assert (await client.blackouts()).items == []
    assert all(e.job != "secret" for e in (await client.executions(limit=500)).items)
    found = await neighbour.execution(ran.execution_id)
    assert (found.state, (await neighbour.job("secret")).state) == ("queued", "active")
    assert len((await neighbour.executions()).items) == 1
