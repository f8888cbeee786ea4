"""A tenant sees nothing of another: every route and page is asked for the names and ids of another tenant."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import httpx2
import msgspec
import pytest

from mainspring import wire
from mainspring.api.app import endpoints
from mainspring.api.context import Context
from mainspring.client import AsyncClient
from mainspring.domain.alert import Rule
from mainspring.domain.trigger import CompletionSource
from mainspring.domain.watch import FilesSource
from mainspring.store import jobs
from mainspring.store.db import Database
from mainspring.views import refs
from mainspring.web.app import every_page
from tests.conftest import Cluster, started
from tests.support.database_roles import server_urls
from tests.support.pages import NAVIGATION, open_page, sign_in
from tests.support.processes import until_async

pytestmark = pytest.mark.anyio

MARK = "zq7mark"
"""Part of every name and text of the first tenant: whatever shows it shows data of that tenant."""
VOLATILE = {
    "sessions",
    "tokens",
    "shards",
    "browser_sessions",
    "login_links",
    "session_functions",
    "outbox",
    "deliveries",
    "queue_samples",
    "job_rollups",
    "queue_rollups",
    "audit_heads",
    "trigger_watches",
}
"""Tables that the engine changes: heartbeats, use of credentials, deliveries, samples, rollups, heads, watches."""
MOST_REFS = 6
TABLES = {
    "jobs": ("jobs",), "workflows": ("jobs",), "executions": ("executions", "history"), "runs": ("runs",),
    "backfills": ("backfills",), "dead-letters": ("dead_letters",), "failures": ("dead_letters",),
    "calendars": ("calendars",), "blackouts": ("blackouts",), "channels": ("channels",), "silences": ("silences",),
    "alert-rules": ("alert_rules",), "reservations": ("reservations",), "workers": ("sessions", "workers"),
    "duration-requests": ("duration_requests",), "tokens": ("tokens",), "users": ("principals",), "roles": ("roles",),
    "browser-sessions": ("tokens",),
}  # fmt: skip
"""The tables whose ids and names a path may contain, by a part of the path."""
_PART = re.compile(r"\{\w+\}")


@dataclass
class Victim:
    """The tenant whose data must not be seen: its id, its names and ids, and its client."""

    tenant: int
    client: AsyncClient
    names: set[str] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)
    of_table: dict[str, set[str]] = field(default_factory=dict)

    def refs(self, path: str) -> list[str]:
        """Names and ids of the kind that a path names, at most MOST_REFS, and some of other kinds."""
        noun = next((part for part in path.split("/") if part in TABLES), "")
        own = sorted(set().union(*(self.of_table.get(t, set()) for t in TABLES.get(noun, ()))))
        return [*own[:MOST_REFS], *sorted((self.names | self.ids) - set(own))[:: 1 + len(self.ids) // 2]]


def named(what: str) -> str:
    return f"{MARK}-{what}"


def job(what: str, *command: str, **fields: Any) -> dict[str, Any]:
    return {"name": named(what), "task": {"kind": "shell", "argv": list(command)}, **fields}


@asynccontextmanager
async def tenant(cluster: Cluster, name: str) -> AsyncIterator[tuple[int, AsyncClient]]:
    async with cluster.client() as admin:
        await admin.create_tenant(wire.NewTenant(name=name))
        token = (await admin.issue_tenant_token(name, wire.NewToken(name=f"{name} admin", role="admin"))).token
    async with cluster.database.connection() as connection:
        number = await connection.fetchval("SELECT tenant_id FROM tenants WHERE name = $1", name)
    async with AsyncClient(cluster.url, token) as client:
        yield number, client


@pytest.fixture(scope="module")
async def cluster(database_url: str) -> AsyncIterator[Cluster]:
    """A server whose roles own nothing, as in production."""
    async with started(database_url, **server_urls(database_url)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
async def victim(cluster: Cluster) -> AsyncIterator[Victim]:
    async with tenant(cluster, named("tenant")) as (number, client):
        found = Victim(number, client)
        await _definitions(client)
        await _executions(cluster, client)
        async with cluster.database.connection() as connection:
            await connection.execute(
                "WITH t AS (INSERT INTO queue_sample_times VALUES (db_now()) RETURNING sampled_at)"
                " INSERT INTO queue_samples SELECT $1, sampled_at, $2, 5 FROM t",
                number,
                named("queue"),
            )
            await connection.execute(
                "INSERT INTO trigger_files (trigger_id, path, tenant_id, version, outcome)"
                " SELECT trigger_id, $2, tenant_id, '1', 'ignored' FROM triggers WHERE tenant_id = $1"
                " AND kind = 'files'",
                number,
                named("file"),
            )
            await connection.execute(
                "INSERT INTO trigger_starts (execution_id, tenant_id, job_id, trigger_id, name, kind, key)"
                " SELECT $2, tenant_id, $3, trigger_id, name, kind, $4 FROM triggers WHERE tenant_id = $1"
                " AND kind = 'files'",
                number,
                uuid4(),
                uuid4(),
                named("delivery"),
            )
            await connection.execute(
                "INSERT INTO tenant_output (tenant_id, day, bytes) VALUES ($1, '2026-01-01', 5)", number
            )
            await connection.execute("INSERT INTO tenant_retention (tenant_id, day) VALUES ($1, '2026-01-01')", number)
            await connection.execute(
                "INSERT INTO trigger_positions (trigger_id, topic_key, part, tenant_id, next_offset)"
                " SELECT trigger_id, $2, 0, tenant_id, 5 FROM triggers WHERE tenant_id = $1 AND kind = 'files'",
                number,
                named("topic"),
            )
            await connection.execute(
                "INSERT INTO event_outbox (event_id, tenant_id, event, key, body)"
                " VALUES (gen_random_uuid(), $1, 'execution.failed', $2, '{}')",
                number,
                named("key"),
            )
            await connection.execute(
                "INSERT INTO job_usage (job_id, day, tenant_id, attempts, cpu_ms, wall_ms, cores_max, memory_max)"
                " SELECT job_id, db_now()::date, tenant_id, 1, 1, 1, 1, 1 FROM jobs WHERE tenant_id = $1",
                number,
            )
            await connection.execute(
                "WITH day AS (INSERT INTO archive_days (parent, day, state, write_id, written_at)"
                " VALUES ('history', '2026-01-01', 'written', gen_random_uuid(), db_now()) RETURNING parent, day)"
                " INSERT INTO archives (name, parent, day, tenant_id, content, rows, bytes, sha256, first_id, last_id)"
                " SELECT $2, parent, day, $1, parent, 1, 1, '', gen_random_uuid(), gen_random_uuid() FROM day",
                number,
                named("archive"),
            )
            for rollups in ("job_rollups (job_id, ", "queue_rollups ("):
                await connection.execute(
                    f"INSERT INTO {rollups}at, queue, tenant_id, succeeded, failed, cancelled, skipped, duration_ms,"
                    f" wait_ms, buckets, counts) SELECT {'gen_random_uuid(), ' if 'job_id' in rollups else ''}"
                    " date_trunc('hour', db_now()), $2, $1, 1, 0, 0, 0, 1, 1, '{1}', '{1}'",
                    number,
                    named("queue"),
                )
        assert client.server.token is not None
        await cluster.context.auth.cookie_for_token(client.server.token)
        await _collect(cluster, found)
        yield found


@pytest.fixture(scope="module")
async def prober(cluster: Cluster) -> AsyncIterator[AsyncClient]:
    async with tenant(cluster, f"prober-{uuid4().hex[:6]}") as (_, client):
        await client.create_job({"name": "own", "task": {"kind": "noop"}})
        yield client


async def _definitions(client: AsyncClient) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    await client.put_calendar(named("calendar"), wire.CalendarDays(dates=[date(2090, 1, 1)]))
    await client.add_blackout(wire.NewBlackout(start_at=soon, end_at=soon + timedelta(hours=1), reason=named("why"),
                                               queue=named("queue")))  # fmt: skip
    await client.create_job(job("fails", "sh", "-c", f"echo {MARK}-output; exit 3", retries={"max": 0},
                                description=named("text"), metadata={"owner": named("owner")}))  # fmt: skip
    await client.create_job(
        job(
            "works",
            "sh",
            "-c",
            f"echo {MARK}-output; echo x > $MAINSPRING_ARTIFACTS/{MARK}.txt",
            schedule={"every": "1h"},
            concurrency={"key": named("key"), "limit": 5},
        )
    )
    await client.create_job(job("late", "true"))
    await client.add_need(named("late"), named("works"))
    step = {"task": {"kind": "noop"}}
    await client.apply_workflow({"name": named("flow"), "steps": {f"{MARK}_step": step}})
    target = {"kind": "webhook", "url": f"https://{MARK}.invalid/hook"}
    await client.add_channel(
        wire.NewChannel(name=named("channel"), target=_target(target), events=["execution.failed"])
    )
    await client.put_alert_rule(named("rule"), Rule(condition="dead_letters", threshold=7))
    await client.add_silence(wire.NewSilence(matchers={"job": named("*")}, end_at=soon, reason=named("quiet")))
    await client.set_queue(named("queue"), {"cap": 5, "max_duration_s": 60})
    longer = wire.NewDurationRequest(job=named("works"), queue=named("queue"), timeout="2h", reason=named("long"))
    await client.request_duration(longer)
    kept = wire.NewReservation(name=named("kept"), start_at=soon, end_at=soon + timedelta(hours=1), anyway=True)
    await client.add_reservation(kept)
    await client.write_role(named("role"), wire.RoleSpec(scopes=["read"]))
    await client.create_user(wire.NewUser(name=named("user"), role=named("role"), display_name=named("display")))
    await client.issue_token(wire.NewToken(name=named("token"), user=named("user")))
    await client.login_link()
    await client.put_secret(named("secret"), wire.SecretSpec(value=named("value"), jobs=[named("works")]))
    await client.add_trigger(
        wire.NewTrigger(name=named("trigger"), job=named("late"), source=CompletionSource(after=named("works")))
    )
    await client.add_trigger(
        wire.NewTrigger(name=named("inbox"), job=named("late"), source=FilesSource(place=f"/{MARK}/inbox"))
    )
    manifest = {"kind": "Calendar", "metadata": {"name": named("applied")}, "spec": {"dates": ["2090-01-01"]}}
    await client.apply_manifests(wire.ApplyManifests(manifests=[manifest], owner=named("owner")))


def _target(target: dict[str, Any]) -> Any:
    return msgspec.convert({"target": target}, wire.ChannelSpec).target


async def _executions(cluster: Cluster, client: AsyncClient) -> None:
    async with working(cluster, client):
        for what, state in (("works", "succeeded"), ("fails", "failed")):
            made = await client.trigger(named(what), wire.RunNow(params={}, reason=named("reason")))
            await client.wait(made.execution_id, timeout_s=30)
            assert (await client.execution(made.execution_id)).state == state
        await client.start_run(named("flow"))
        await client.trigger(named("works"), wire.RunNow(key=named("key")))
    assert (await client.dead_letters()).items
    past = datetime.now(UTC) - timedelta(days=2)
    await client.start_backfill(named("works"), wire.BackfillRequest(from_=past, to=past + timedelta(hours=3)))
    await client.trigger(named("works"))


async def _collect(cluster: Cluster, victim: Victim) -> None:
    """Every id and every name in the rows of the tenant, of all tables."""
    found = await _rows(cluster, victim.tenant)
    assert {table for table, rows in found.items() if not rows} <= EMPTY, "the probe would miss these tables"
    for table, rows in found.items():
        for row in rows:
            victim.ids |= {str(value) for value in row.values() if isinstance(value, UUID)}
            own = {str(row[k]) for k in row if k == f"{table.rstrip('s')}_id" or k in PRIMARY}
            names = {v for k, v in row.items() if k == "name" and isinstance(v, str) and MARK in v}
            victim.names |= names
            victim.of_table.setdefault(table, set()).update(own, names)
    # Numbers written as ids are no secret, nor is the token of the cluster administrator who created both tenants.
    async with cluster.database.connection() as connection:
        shared = await connection.fetch("SELECT token_id FROM tokens WHERE tenant_id = 1")
    victim.ids -= {str(row["token_id"]) for row in shared} | {str(UUID(int=n)) for n in range(10)}


PRIMARY = ("execution_id", "dead_letter_id", "principal_id", "session_id")
EMPTY = {
    "alerts", "checkpoints", "evictions", "function_sets", "job_notices", "plugins", "run_events", "submissions",
    "submitting_roles", "token_grants", "request_keys", "step_approvals", "audit_chain", "audit_chains", "audit_heads",
    "audit_pending",
}  # fmt: skip
"""Tables that the fixture does not fill, or that the leader fills and empties at any time."""


async def _rows(cluster: Cluster, tenant: int) -> dict[str, list[dict[str, Any]]]:
    async with cluster.database.connection() as connection:
        tables = await connection.fetch(
            "SELECT c.relname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
            " WHERE a.attname = 'tenant_id' AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
            " AND c.relnamespace = 'mainspring'::regnamespace ORDER BY 1"
        )
        return {
            t["relname"]: [
                dict(r) for r in await connection.fetch(f"SELECT * FROM {t['relname']} WHERE tenant_id = $1", tenant)
            ]
            for t in tables
            if t["relname"] != "tenants"
        }


def paths_of(path: str, refs: list[str]) -> Iterator[tuple[str, str]]:
    """A path with each of the foreign references in all its places."""
    if not _PART.search(path):
        yield path, ""
        return
    for ref in refs:
        yield _PART.sub(ref.replace("\\", ""), path), ref


def leaks(text: str, victim: Victim, asked: str) -> set[str]:
    """What of the victim an answer shows, besides what the request itself named."""
    rest = text.replace(asked, "") if asked else text
    found = {i for i in victim.ids if i in rest}
    return found | ({MARK} if MARK in rest else set())


async def read(http: httpx2.AsyncClient, path: str) -> tuple[int, str]:
    """Read an answer; of a stream, only that it begins."""
    async with http.stream("GET", path) as answer:
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            return answer.status_code, ""
        return answer.status_code, (await answer.aread()).decode(errors="replace")


@pytest.mark.requirement(139)
async def test_no_read_of_the_api_shows_another_tenant(cluster: Cluster, victim: Victim, prober: AsyncClient) -> None:
    assert len(victim.ids) > 20 and len(victim.names) >= 12
    headers = {"Authorization": f"Bearer {prober.server.token}"}
    found, opened = [], []
    async with httpx2.AsyncClient(base_url=cluster.url, headers=headers, trust_env=False, timeout=30) as http:
        for e in endpoints():
            if e.method != "GET" or e.scope == "cluster":
                continue
            for path, ref in paths_of(e.path, victim.refs(e.path)):
                status, text = await read(http, path)
                if shown := leaks(text, victim, ref):
                    found.append((path, shown))
                if ref and status != 404:
                    opened.append((path, status))
            for name in e.query if not _PART.search(e.path) else ():
                for ref in (MARK, named("works"), *sorted(victim.ids)[:3]):
                    _, text = await read(http, f"{e.path}?{name}={ref}")
                    if shown := leaks(text, victim, ref):
                        found.append((f"{e.path}?{name}={ref}", shown))
    assert found == []
    assert [o for o in opened if not o[0].startswith("/api/v1/queues/")] == []


@pytest.mark.requirement(139)
async def test_no_page_shows_another_tenant(cluster: Cluster, victim: Victim, prober: AsyncClient) -> None:
    assert prober.server.token is not None
    found, opened = [], []
    async with httpx2.AsyncClient(base_url=cluster.url, headers=NAVIGATION, timeout=30) as browser:
        await sign_in(browser, prober.server.token)
        await open_page(browser, "/settings")
        for page in every_page():
            if page.get is None or page.read_scope == "cluster" or "{file}" in page.path:
                continue
            for path, ref in paths_of(page.path, victim.refs(page.path)):
                status, text = await read(browser, path)
                if shown := leaks(text, victim, ref):
                    found.append((path, shown))
                if ref and status not in (404, 422):  # 422: the address lacks what to decide
                    opened.append((path, status))
        for path in (f"/search?q={MARK}", f"/jobs?q={MARK}", f"/executions?job={named('works')}", f"/audit?q={MARK}"):
            _, text = await read(browser, path)
            if shown := leaks(text.replace(named("works"), ""), victim, MARK):
                found.append((path, shown))
    assert found == []
    assert [o for o in opened if not o[0].startswith("/queues/")] == []


WATCH_WRITES = """
CREATE TABLE probed_writes (relation text, writer text, tenant int);
CREATE FUNCTION note_write() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = mainspring AS $$
BEGIN
    INSERT INTO probed_writes
    VALUES (TG_TABLE_NAME, session_user, (coalesce(to_jsonb(NEW), to_jsonb(OLD)) ->> 'tenant_id')::int);
    RETURN NULL;
END $$;
DO $$
DECLARE found record;
BEGIN
    FOR found IN SELECT c.relname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        WHERE a.attname = 'tenant_id' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
          AND c.relnamespace = 'mainspring'::regnamespace AND c.relname <> 'probed_writes'
    LOOP
        EXECUTE format('CREATE TRIGGER noted AFTER INSERT OR UPDATE OR DELETE ON %I'
                       ' FOR EACH ROW EXECUTE FUNCTION note_write()', found.relname);
    END LOOP;
END $$
"""


@pytest.fixture
async def writes(database_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A connection of the owner, to a table that gets the role and the tenant of every row that is written."""
    owner: asyncpg.Connection[Any] = await asyncpg.connect(database_url, server_settings={"search_path": "mainspring"})
    await owner.execute(WATCH_WRITES)
    yield owner
    await owner.execute("DROP FUNCTION note_write CASCADE; DROP TABLE probed_writes")
    await owner.close()


async def written_by_requests(writes: asyncpg.Connection[Any]) -> list[tuple[str, int]]:
    """The tables, and the tenants of the rows, that connections of requests wrote; the engine has another role."""
    sql = "SELECT DISTINCT relation, tenant FROM probed_writes WHERE writer = 'mainspring_tenant' ORDER BY 1, 2"
    return [(row["relation"], row["tenant"]) for row in await writes.fetch(sql)]


@pytest.mark.requirement(139)
async def test_no_request_changes_another_tenant(
    cluster: Cluster, victim: Victim, prober: AsyncClient, writes: asyncpg.Connection[Any]
) -> None:
    """Every verb with every foreign reference: 404, or refused for its body; and no row of the tenant changes."""
    before = await _rows(cluster, victim.tenant)
    headers = {"Authorization": f"Bearer {prober.server.token}"}
    passed = []
    async with httpx2.AsyncClient(base_url=cluster.url, headers=headers, trust_env=False, timeout=30) as http:
        for e in sorted(endpoints(), key=lambda e: e.method != "DELETE"):  # before PUT creates own objects
            if e.method == "GET" or e.scope in ("cluster", "worker") or not _PART.search(e.path):
                continue
            for path, ref in paths_of(e.path, victim.refs(e.path)):
                answer = await http.request(e.method, path, json=BODIES.get(e.path, {}) if e.body is not None else None)
                if answer.status_code not in (404, 422) and not _creates_own(e.method, e.path):
                    passed.append((e.method, path, answer.status_code))
                assert not leaks(answer.text, victim, ref), (e.method, path, answer.text)
    assert passed == []
    by_requests = await written_by_requests(writes)
    assert by_requests and [relation for relation, tenant in by_requests if tenant == victim.tenant] == []
    after = await _rows(cluster, victim.tenant)
    changed = [table for table in before if table not in VOLATILE and before[table] != after[table]]
    assert changed == []


@pytest.fixture
async def misdirected(
    cluster: Cluster, victim: Victim, prober: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client with the victim's own token, whose requests get database connections of another tenant.

    Every filter of the API matches the rows of the victim, as if it had forgotten the caller: only row-level security
    is left.
    """
    async with cluster.database.connection() as connection:
        other = await connection.fetchval("SELECT tenant_id FROM tenants WHERE name LIKE 'prober-%'")
    assert cluster.database.has_tenant_role
    bind, of = Context.of, Database.of
    monkeypatch.setattr(Context, "of", lambda context, _tenant: bind(context, other))
    monkeypatch.setattr(Database, "of", lambda database, _tenant: of(database, other))
    cluster.context.reads.wrote(victim.tenant, None)
    headers = {"Authorization": f"Bearer {victim.client.server.token}"}
    async with httpx2.AsyncClient(base_url=cluster.url, headers=headers, trust_env=False, timeout=30) as http:
        yield http


@pytest.mark.requirement(139)
async def test_the_database_hides_another_tenant_from_reads(victim: Victim, misdirected: httpx2.AsyncClient) -> None:
    found, opened = [], []
    for e in endpoints():
        if e.method != "GET" or e.scope in ("cluster", "worker") or e.path in OF_THE_ENGINE:
            continue
        for path, ref in paths_of(e.path, victim.refs(e.path)):
            status, text = await read(misdirected, path)
            if shown := leaks(text, victim, ref):
                found.append((path, shown))
            if ref and status != 404:
                opened.append((path, status))
    assert found == []
    assert [o for o in opened if not o[0].startswith("/api/v1/queues/")] == []


@pytest.mark.requirement(139)
async def test_the_database_protects_another_tenant_from_writes(
    cluster: Cluster, victim: Victim, misdirected: httpx2.AsyncClient, writes: asyncpg.Connection[Any]
) -> None:
    """No request writes a row of the tenant, of any table; what changes is changed by the role of the engine."""
    before = await _rows(cluster, victim.tenant)
    async with cluster.database.of(victim.tenant).connection() as connection:
        await connection.execute("UPDATE jobs SET name = name")  # of the other tenant: shows that writes are noted
    passed = []
    for e in endpoints():
        if e.method == "GET" or e.scope in ("cluster", "worker") or not _PART.search(e.path):
            continue
        if e.path.endswith("/trigger"):  # submissions of all tenants are inserted together, by the engine
            continue
        for path, _ in paths_of(e.path, victim.refs(e.path)):
            body = BODIES.get(e.path, {}) if e.body is not None else None
            answer = await misdirected.request(e.method, path, json=body)
            if answer.status_code not in (404, 422, 500):  # 500: the database refused a row of another tenant
                passed.append((e.method, path, answer.status_code))
    assert passed == []
    by_requests = await written_by_requests(writes)
    assert "jobs" in {relation for relation, _ in by_requests}
    assert [relation for relation, tenant in by_requests if tenant == victim.tenant] == []
    after = await _rows(cluster, victim.tenant)
    recorded = [entry for entry in after.pop("audit") if entry not in before["audit"]]
    assert [entry for entry in recorded if entry["action"] not in OBSERVED] == []
    changed = [table for table in after if before[table] != after[table]]
    assert [table for table in changed if table not in VOLATILE | OF_EXECUTIONS] == []


@pytest.mark.requirement(139)
async def test_no_submission_starts_a_job_of_another_tenant(
    cluster: Cluster, victim: Victim, prober: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Submissions of all tenants are inserted together. Without the API's filter, the statement refuses the job."""
    job_row, find_jobs = refs.job_row, jobs.find_jobs
    reads: list[int] = []

    async def unfiltered_row(database: Database, ref: str, *, tenant: int) -> Any:
        reads.append(tenant)
        return await job_row(cluster.database, ref, tenant=victim.tenant)

    async def unfiltered_jobs(connection: Any, *, tenant: int, **asked: Any) -> Any:
        reads.append(tenant)
        return await find_jobs(connection, tenant=victim.tenant, **asked)

    monkeypatch.setattr(refs, "job_row", unfiltered_row)
    monkeypatch.setattr(jobs, "find_jobs", unfiltered_jobs)
    name = named("late")
    headers = {"Authorization": f"Bearer {prober.server.token}"}
    async with httpx2.AsyncClient(base_url=cluster.url, headers=headers, trust_env=False, timeout=30) as http:
        for path, body, more in (
            (f"/api/v1/jobs/{name}/trigger", {}, {}),
            (f"/api/v1/jobs/{name}/trigger", {}, {"Idempotency-Key": "k"}),
            (f"/api/v1/jobs/{name}/trigger", {"reason": "r"}, {}),
        ):
            before = len(reads)
            answer = await http.post(path, json=body, headers=more)
            assert answer.status_code == 404 and len(reads) > before, (path, body, more, answer.text)
        before = len(reads)
        answer = await http.post("/api/v1/executions:batch", json={"items": [{"job": name}, {"job": name, "key": "k"}]})
        assert len(reads) > before, "the filter that this test removes is used"
        assert [item["status"] for item in answer.json()["items"]] == [404, 404]
    async with cluster.database.connection() as connection:
        mixed = "SELECT count(*) FROM all_executions e JOIN jobs j USING (job_id) WHERE e.tenant_id <> j.tenant_id"
        assert await connection.fetchval(mixed) == 0


OF_EXECUTIONS = {
    "alerts", "attempts", "audit_chain", "audit_chains", "audit_pending", "backfills", "channels", "dead_letters",
    "executions", "history", "idempotency_keys", "job_needs", "log_chunks", "run_steps", "runs", "trigger_deliveries",
    "trigger_starts",
}  # fmt: skip
"""Tables that the engine may change meanwhile. That no request did is seen by the role that wrote."""
OBSERVED = {"browser_session.begin", "request.deny", "secret.use"}
"""Entries of the audit log that record no change: they may be written a little after what they record."""
OF_THE_ENGINE = ("/metrics", "/api/v1/doctor", "/api/v1/system/shards", "/api/v1/whoami")
"""Reads whose connection is not bound to a tenant: they count across tenants, or show the caller."""
BODIES: dict[str, Any] = {
    "/api/v1/jobs/{ref}/rollback": {"version": 1},
    "/api/v1/jobs/{ref}/skip": {"reason": "r"},
    "/api/v1/jobs/{ref}/force-complete": {"reason": "r"},
    "/api/v1/workflows/{ref}/rollback": {"version": 1},
    "/api/v1/dead-letters/{ref}/dismiss": {"reason": "r"},
    "/api/v1/dead-letters/{ref}": {"note": "n"},
    "/api/v1/runs/{run_id}/steps/{step}/skip": {"reason": "r"},
    "/api/v1/runs/{run_id}/steps/{step}/force-complete": {"reason": "r"},
    "/api/v1/roles/{name}": {"scopes": ["read"]},
    "/api/v1/calendars/{name}": {"dates": ["2090-01-02"]},
    "/api/v1/alert-rules/{name}": {"condition": "dead_letters", "threshold": 3},
}


def _creates_own(method: str, path: str) -> bool:
    """Names are free for each tenant: writing one creates an object of the caller."""
    own = ("roles", "calendars", "alert-rules", "queues", "channels")
    if (method, path) == ("DELETE", "/api/v1/alert-rules/{name}"):
        return True
    return method in ("PUT", "PATCH") and path.split("/")[3] in own


@pytest.mark.requirement(139)
async def test_streams_carry_only_the_own_tenant(cluster: Cluster, victim: Victim, prober: AsyncClient) -> None:
    seen: list[wire.Execution] = []

    async def follow() -> None:
        async for execution in prober.feed():
            seen.append(execution)

    async def arrives() -> bool:
        for client, name in ((victim.client, named("works")), (prober, "own")):
            made = await client.trigger(name)
            await client.wait(made.execution_id, timeout_s=30)
        return bool(seen)

    task = asyncio.create_task(follow())
    try:
        async with working(cluster, victim.client), working(cluster, prober):
            await until_async("an own execution arrives", arrives, within_s=30)
    finally:
        task.cancel()
    assert {e.job for e in seen} == {"own"}


@asynccontextmanager
async def working(cluster: Cluster, client: AsyncClient) -> AsyncIterator[None]:
    """A worker of the client's tenant."""
    fleet = await client.issue_worker_token(wire.NewWorkerToken(name=named("fleet"), queues=["*"], labels=["*"]))
    theirs = replace(cluster, worker_token=fleet.token)
    async with theirs.worker(name=named("worker"), queues=("short", "long"), labels={"zone": MARK}):
        yield
