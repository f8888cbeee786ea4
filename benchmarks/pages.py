"""Response times of pages and lists over 10,000,000 executions, page weights, and slow statements.

Requests every page of the route table, with several filters, and every list of the API, one after the other, many
times, from a server on a database filled by seed.py; measures the time to the first byte. SEED_EXECUTIONS, PAGES_ROUNDS
and PAGES_SECONDS (the maximum duration) make it smaller. PAGES_FOLDER keeps the filled database for the next time;
without it a new one is filled and removed.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import asyncpg
import httpx2
from harness import Machine, machine, publish, quantile
from seed import seed
from seed_plan import EXECUTIONS, JOBS, Plan
from starlette.routing import Route

from mainspring.api.app import endpoints
from mainspring.api.context import Context
from mainspring.web.app import routes

ROUNDS = int(os.environ.get("PAGES_ROUNDS", "20"))
SECONDS = float(os.environ.get("PAGES_SECONDS", "900"))
FOLDER = os.environ.get("PAGES_FOLDER", "")
SETTINGS = {"wal_level": "minimal", "max_wal_senders": "0"}  # so that filling writes no WAL for new tables
BUDGET_MS = 150.0
SCRIPT_BUDGET = 60_000
SLOW_MS = 100.0
NOT_LISTS = ("/api/v1/stream", "/ui/stream", "/static/{file}", "/login")
"""What never ends, and what is no page."""
MORE = (
    "/executions?state=running", "/executions?state=queued", "/executions?state=waiting&state=blocked",
    "/executions?state=succeeded", "/executions?state=failed&state=timed_out&state=lost", "/executions?state=cancelled",
    "/executions?state=skipped", "/executions?state=lost", "/executions?job={job}&state=lost",
    "/executions?job={rare}&state=failed", "/executions?q=state:failed+since:7d", "/executions?q=queue:long+until:3d",
    "/executions?q=trigger:manual+state:lost", "/executions?q=ledger-00005", "/executions?cursor={old}",
    "/executions?q=state:lost+job:{rare}+since:30d",
    "/jobs?prefix=ml-", "/jobs?prefix=web-0999", "/jobs?q=state:paused", "/jobs?q=kind:shell+queue:long",
    "/jobs?q=00042", "/jobs?q=nothing-like-it", "/jobs?cursor=ops-05000", "/jobs/{rare}", "/jobs/{rare}/stats",
    "/jobs/{rare}/why", "/jobs/{rare}/ledger", "/jobs/{rare}/chart", "/jobs/{job}?cursor={old}",
    "/failures?state=open", "/failures?state=dismissed", "/failures?job={job}", "/failures?job={rare}",
    "/runs/{wide}", "/runs/{wide}?show=grid", "/runs/{wide}?show=gantt", "/runs/{wide}?state=blocked",
    "/runs/{wide}?find=s42", "/workflows/flow-wide", "/system?doctor=1",
    "/audit?action=job", "/audit?actor=person-7", "/audit?subject={job}", "/audit?subject={rare}&action=job.pause",
    "/api/v1/executions?state=lost", "/api/v1/executions?limit=200", "/api/v1/executions?filter=state:failed+since:7d",
    "/api/v1/jobs?limit=500", "/api/v1/jobs?prefix=ml-", "/api/v1/audit?actor=person-7",
    *(f"/api/v1/jobs/{{job}}/{what}" for what in ("executions", "fires", "ledger", "why")),
)  # fmt: skip
QUERIES = {
    "/jobs/{ref}/rollback": "?version=1",
    "/jobs/{ref}/schedule": "?expression=every+2h",
    "/failures/plan": "?job={job}",
    "/playground": "?expression=0+9+*+*+MON",
    "/new": "?expression=every+1h",
    "/search": "?q={job}",
    "/runs/{ref}/decide": "?step=publish&what=skip",
}
LOADED = re.compile(
    r'<(?:script|img|iframe|source|video|audio|embed|use)\b[^>]*?\s(?:src|href)="([^"]+)"'
    r'|<link\b(?=[^>]*\brel="(?:stylesheet|icon|preload|modulepreload|manifest)")[^>]*?\shref="([^"]+)"'
)


@dataclass
class Answers:
    """The responses of one address."""

    status: int = 0
    bytes: int = 0
    script: int = 0
    foreign: list[str] = field(default_factory=list)
    first_ms: list[float] = field(default_factory=list)


def addresses(refs: dict[str, str]) -> list[str]:
    """Return every page and list, with existing ids in the paths."""
    found = []
    for route in routes(cast(Context, None)):
        if isinstance(route, Route) and "GET" in (route.methods or ()) and route.path not in NOT_LISTS:
            path = route.path.replace("{ref}", refs.get(route.path.split("/")[1], "none"))
            found.append(path + QUERIES.get(route.path, ""))
    lists = [e.path for e in endpoints() if e.method == "GET" and e.response is not None and "{" not in e.path]
    found += [path for path in lists if path not in NOT_LISTS]
    return list(dict.fromkeys(re.sub(r"\{(\w+)\}", lambda m: refs[m[1]], a) for a in (*found, *MORE)))


async def references(target: Machine) -> dict[str, str]:
    """Return the busiest job, a quiet one, and an execution, a failure, a workflow, a run, a worker and a queue."""
    queries = {
        "jobs": "SELECT name FROM jobs WHERE name LIKE 'crm-00001'",
        "rare": f"SELECT name FROM jobs WHERE name LIKE '%-{JOBS - 1:05d}'",
        "executions": "SELECT execution_id FROM history WHERE state = 'failed' AND tenant_id = 1 LIMIT 1",
        "old": "SELECT execution_id FROM history WHERE tenant_id = 1 LIMIT 1",
        "failures": "SELECT dead_letter_id FROM dead_letters WHERE state = 'open' AND tenant_id = 1 LIMIT 1",
        "workflows": "SELECT name FROM jobs WHERE name LIKE 'flow-%-%' LIMIT 1",
        "runs": "SELECT run_id FROM runs WHERE finished_at IS NOT NULL ORDER BY run_id DESC LIMIT 1",
        "wide": "SELECT run_id FROM runs WHERE finished_at IS NULL LIMIT 1",
    }
    async with target.database.connection() as connection:
        found = {k: str(await connection.fetchval(query)) for k, query in queries.items()}
    return {**found, "job": found["jobs"], "workers": "worker-01", "queues": "short"}


async def measure(target: Machine, places: list[str]) -> dict[str, Answers]:
    """Request all pages round by round, to spread disturbances; the first round warms up and inspects pages."""
    found = {place: Answers() for place in places}
    caller = {"authorization": f"Bearer {target.token}", "accept": "text/html,application/json"}
    begun = time.monotonic()
    async with httpx2.AsyncClient(base_url=target.url, headers=caller, timeout=120) as client:
        for n in range(ROUNDS + 1):
            for place, answers in found.items():
                first_ms, response, body = await _ask(client, place)
                if n:
                    answers.first_ms.append(first_ms)
                elif "text/html" in response.headers.get("content-type", ""):
                    answers.script = await _script_bytes(client, body.decode())
                    answers.foreign = _foreign(body.decode())
                answers.status, answers.bytes = response.status_code, len(body)
            passed_s = time.monotonic() - begun
            _tell(f"asked {len(places)} addresses, {n} of {ROUNDS} rounds after {passed_s:.0f} s")
            if n and passed_s > SECONDS:
                break
    return found


async def _ask(client: httpx2.AsyncClient, place: str) -> tuple[float, httpx2.Response, bytes]:
    begun = time.perf_counter()
    async with client.stream("GET", place) as response:
        first_ms = (time.perf_counter() - begun) * 1000
        return first_ms, response, await response.aread()


async def _script_bytes(client: httpx2.AsyncClient, html: str) -> int:
    """Return the compressed size of a page's scripts with everything they import."""
    wanted, seen = re.findall(r'<script[^>]* src="([^"]+)"', html), dict[str, int]()
    while wanted:
        path = wanted.pop()
        if path not in seen:
            text = (await client.get(path)).content
            seen[path] = len(gzip.compress(text, 6))
            wanted += [f"/static/{name}" for name in re.findall(r'from "\./([\w.]+)"', text.decode())]
    return sum(seen.values())


def _foreign(html: str) -> list[str]:
    """Return what a page would load from other hosts."""
    loaded = [one or other for one, other in LOADED.findall(html)]
    return [url for url in loaded if re.match(r"(?:[a-z][a-z0-9+.-]*:)?//", url)]


async def slow_statements(dsn: str) -> list[tuple[float, float, int, str]]:
    connection = await asyncpg.connect(dsn)
    rows = await connection.fetch(
        "SELECT max_exec_time AS worst, mean_exec_time AS mean, calls, query FROM pg_stat_statements"
        " WHERE max_exec_time > $1 AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
        " ORDER BY max_exec_time DESC LIMIT 20",
        SLOW_MS,
    )
    await connection.close()
    return [(r["worst"], r["mean"], r["calls"], " ".join(r["query"].split())[:160]) for r in rows]


async def _forget_statements(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    await connection.execute("SELECT pg_stat_statements_reset()")
    await connection.close()


async def fill(target: Machine, kept: Path | None) -> float:
    """Fill the database unless it is filled already; return the seconds that took, then or now."""
    mark = kept / "seed.json" if kept else None
    wanted = {"executions": EXECUTIONS, "jobs": JOBS}
    if mark is not None and mark.exists():
        found = json.loads(mark.read_text())
        if {k: found[k] for k in wanted} != wanted:
            sys.exit(
                f"{kept} has {found['executions']:,} executions of {found['jobs']:,} jobs: ask for these, or remove it"
            )
        _tell(f"uses the {EXECUTIONS:,} executions in {kept}")
        return float(found["seconds"])
    async with target.database.connection() as connection:
        if await connection.fetchval("SELECT count(*) FROM tenants") > 1:
            sys.exit(f"{kept} was left half filled: remove it")
    _tell(f"fills {EXECUTIONS:,} executions of {JOBS:,} jobs")
    begun = time.monotonic()
    await seed(target.database, Plan())
    took_s = time.monotonic() - begun
    if mark is not None:
        mark.write_text(json.dumps({**wanted, "seconds": round(took_s)}))
    return took_s


async def main() -> None:
    kept = Path(FOLDER) if FOLDER else None
    async with machine(kept, SETTINGS) as target:
        seeded_s = await fill(target, kept)
        places = addresses(await references(target))
        superuser = target.postgres.superuser_dsn()
        target.serve("api")
        await target.until_ready()
        await _forget_statements(superuser)
        found = await measure(target, places)
        slow = await slow_statements(superuser)
    report(found, slow, seeded_s)


def report(found: dict[str, Answers], slow: list[tuple[float, float, int, str]], seeded_s: float) -> None:
    rows = sorted(
        ((quantile(a.first_ms, 0.95), quantile(a.first_ms, 0.5), place, a) for place, a in found.items()), reverse=True
    )
    every = [ms for a in found.values() for ms in a.first_ms]
    over = [_short(place) for p95, _, place, _ in rows if p95 > BUDGET_MS]
    broken = [f"{_short(place)} ({a.status})" for _, _, place, a in rows if a.status >= 400]
    foreign = sorted({url for a in found.values() for url in a.foreign})
    heaviest = max(a.script for a in found.values())
    rounds = len(rows[0][3].first_ms)
    lines = [
        f"{EXECUTIONS:,} executions of {JOBS:,} jobs, filled in {seeded_s:.0f} s; {len(found)} pages and lists,"
        f" {rounds} times each, one after the other.",
        "",
        f"First byte over all: p50 {quantile(every, 0.5):.0f} ms, p95 {quantile(every, 0.95):.0f} ms,"
        f" p99 {quantile(every, 0.99):.0f} ms (budget {BUDGET_MS:.0f} ms)."
        f" Over the budget: {', '.join(over) or 'none'}. Not answered: {', '.join(broken) or 'none'}."
        f" Most script on a page, compressed: {heaviest / 1000:.1f} KB (budget {SCRIPT_BUDGET / 1000:.0f} KB)."
        f" Loaded from elsewhere: {', '.join(foreign) or 'nothing'}.",
        "",
        "| address | p50 ms | p95 ms | max ms | KB | script KB |",
        "|---|---:|---:|---:|---:|---:|",
        *(
            f"| `{_short(place)}` | {p50:.0f} | {p95:.0f} | {max(a.first_ms):.0f} | {a.bytes / 1000:.0f}"
            f" | {f'{a.script / 1000:.1f}' if a.script else ''} |"
            for p95, p50, place, a in rows
        ),
        "",
        f"Statements that took more than {SLOW_MS:.0f} ms once: {len(slow) or 'none'}.",
        *(
            f"- worst {worst:.0f} ms, mean {mean:.1f} ms, {calls} calls: `{query}`"
            for worst, mean, calls, query in slow
        ),
    ]
    figures: dict[str, Any] = {
        "benchmark": "pages", "executions": EXECUTIONS, "jobs": JOBS, "seeded_s": round(seeded_s),
        "addresses": len(found), "rounds": rounds,
        "first_byte_p50_ms": round(quantile(every, 0.5), 1), "first_byte_p95_ms": round(quantile(every, 0.95), 1),
        "worst_p95_ms": round(rows[0][0], 1), "over_budget": over, "broken": broken,
        "script_bytes": heaviest, "foreign": foreign, "slow_statements": len(slow),
    }  # fmt: skip
    publish("pages", lines, figures)


def _short(place: str) -> str:
    return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "…", place)


def _tell(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
