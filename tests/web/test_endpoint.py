from __future__ import annotations

import re
from typing import Any

import httpx2
import pytest
from starlette.routing import Route

from mainspring.api.auth import COOKIE
from mainspring.api.federated import CALLBACK
from mainspring.cli.serve import DEFAULT_TENANT
from mainspring.domain.errors import NotFound
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.embedded.server import EmbeddedServer
from mainspring.intake import jobs
from mainspring.views import jobs as job_views
from mainspring.web.app import routes
from tests.conftest import Cluster, clone, started
from tests.support.pages import NAVIGATION, Page, open_page, sign_in

pytestmark = pytest.mark.anyio

PAGES = ["/", "/jobs", "/jobs/missing", "/executions", "/executions?state=nonsense", "/workers", "/login"]
PAGES += ["/playground", "/playground?expression=1&part=1", "/new", "/jobs/missing/ledger", "/nowhere"]


def all_routes(cluster: Cluster) -> list[tuple[str, str]]:
    found = []
    for route in routes(cluster.context):
        assert isinstance(route, Route)
        path = route.path.replace("{ref}", "anything").replace("{file}", "style.css")
        found += [(method, path) for method in route.methods or () if method != "HEAD"]
    return found


async def test_strangers_get_the_login_and_nothing_else(cluster: Cluster, stranger: httpx2.AsyncClient) -> None:
    walked = all_routes(cluster)
    assert len(walked) > 12
    for method, path in walked:
        if path == "/login":
            continue
        if path == CALLBACK:  # of a sign-in that this browser has not begun
            assert (await stranger.request(method, path)).status_code == 401
            continue
        answer = await stranger.request(method, path)
        assert (answer.status_code, answer.headers.get("location", "")[:6]) == (303, "/login"), path
        program = await stranger.request(method, path, headers={"accept": "*/*"})
        assert program.status_code == 401, path


async def test_a_page_asked_for_is_kept_over_the_login(stranger: httpx2.AsyncClient) -> None:
    answer = await stranger.get("/jobs?prefix=a%26b")
    assert answer.headers["location"] == "/login?then=/jobs%3Fprefix%3Da%2526b"
    assert 'name="then" value="/jobs?prefix=a%26b"' in (await stranger.get(answer.headers["location"])).text


async def test_a_link_from_elsewhere_takes_one_step_of_our_own(browser: httpx2.AsyncClient) -> None:
    """Its request comes without the Strict cookie; the step that the answer asks for brings it."""
    cookie = browser.cookies.get(COOKIE)
    browser.cookies.clear()
    answer = await browser.get("/jobs?prefix=x", headers={"sec-fetch-site": "cross-site"})
    assert answer.status_code == 401
    assert 'content="0;url=/jobs?prefix=x"' in answer.text
    browser.cookies.set(COOKIE, cookie or "")
    assert (await browser.get("/jobs?prefix=x")).status_code == 200


@pytest.mark.parametrize("cookie", ["", "x", "a.b.c", "é", "00000000-0000-0000-0000-000000000000.9999999999.AA"])
async def test_a_forged_cookie_is_a_stranger(stranger: httpx2.AsyncClient, cookie: str) -> None:
    answer = await stranger.get("/", headers={b"cookie": f"{COOKIE}={cookie}".encode()})
    assert answer.headers.get("location") == "/login"


async def test_every_answer_carries_the_headers(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    answers = [await browser.get(path) for path in PAGES]
    answers += [await browser.get("/static/style.css"), await browser.get("/static/missing.css")]
    answers += [await browser.request(method, path) for method, path in all_routes(cluster) if method == "POST"]
    for answer in answers:
        where = str(answer.request.url)
        policy = answer.headers["content-security-policy"]
        for rule in ("default-src 'none'", "base-uri 'none'", "frame-ancestors 'none'", "form-action 'self'"):
            assert rule in policy, where
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff", where
        assert answer.headers["referrer-policy"] in ("same-origin", "no-referrer"), where
        assert answer.headers["cache-control"] in ("no-store", "no-cache"), where


async def test_static_files_are_kept_by_their_version_only(browser: httpx2.AsyncClient) -> None:
    page = await open_page(browser, "/")
    hrefs = [str(a["href"]) for a in page.all("link") if a.get("rel") == "stylesheet"]
    hrefs += [str(a["src"]) for a in page.all("script")]
    assert len(hrefs) >= 3
    for href in hrefs:
        answer = await browser.get(href)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
    assert (await browser.get("/static/style.css?v=old")).headers["cache-control"] == "no-cache"
    for name in ("..%2fapp.py", "app.py", "%2e%2e/app.py"):
        assert (await browser.get(f"/static/{name}")).status_code == 404


@pytest.fixture
async def job(cluster: Cluster) -> JobSpec:
    spec = JobSpec(name="guarded", task=NoopTask())
    try:
        found = await job_views.get(cluster.database, spec.name, tenant=DEFAULT_TENANT)
        await jobs.resume(cluster.database, found.job_id, tenant=DEFAULT_TENANT)
    except NotFound:
        await jobs.create(cluster.database, spec, tenant=DEFAULT_TENANT, by="test")
    return spec


async def state_of(cluster: Cluster, job: JobSpec) -> str:
    return (await job_views.get(cluster.database, job.name, tenant=DEFAULT_TENANT)).state


@pytest.mark.parametrize(
    ("form", "headers"),
    [
        ({}, {}),
        ({"csrf": ""}, {}),
        ({"csrf": "0" * 64}, {}),
        ({"csrf": "é"}, {}),
        (None, {"sec-fetch-site": "cross-site"}),
        (None, {"sec-fetch-site": "same-site"}),
        (None, {"sec-fetch-site": "", "origin": "http://example.com"}),
        (None, {"content-type": "application/json"}),
    ],
)
async def test_a_change_needs_our_page_and_its_token(
    cluster: Cluster, browser: httpx2.AsyncClient, job: JobSpec, form: Any, headers: dict[str, str]
) -> None:
    csrf = (await open_page(browser, "/jobs/guarded")).csrf
    content = {"csrf": csrf} if form is None else form
    if "content-type" in headers:
        answer = await browser.post("/jobs/guarded/pause", content=b'{"csrf": "%s"}' % csrf.encode(), headers=headers)
    else:
        answer = await browser.post("/jobs/guarded/pause", data=content, headers=headers)
    assert answer.status_code == 403
    assert Page(answer.text).active_parts() == []
    assert await state_of(cluster, job) == "active"


async def test_a_browser_that_only_says_its_origin_is_believed(
    cluster: Cluster, browser: httpx2.AsyncClient, job: JobSpec
) -> None:
    """Over plain http to another machine browsers leave out Sec-Fetch-Site."""
    csrf = (await open_page(browser, "/jobs/guarded")).csrf
    del browser.headers["sec-fetch-site"]
    refused = await browser.post("/jobs/guarded/pause", data={"csrf": csrf})
    assert refused.status_code == 403
    for origin, status in (("null", 403), ("http://example.com", 403), (cluster.url, 303)):
        answer = await browser.post("/jobs/guarded/pause", data={"csrf": csrf}, headers={"origin": origin})
        assert answer.status_code == status, origin
    assert await state_of(cluster, job) == "paused"


async def test_one_session_s_token_is_no_good_in_another(
    cluster: Cluster, browser: httpx2.AsyncClient, job: JobSpec
) -> None:
    csrf = (await open_page(browser, "/jobs/guarded")).csrf
    async with httpx2.AsyncClient(base_url=cluster.url, headers=browser.headers) as other:
        await sign_in(other, cluster.worker_token)
        assert (await other.post("/jobs/guarded/pause", data={"csrf": csrf})).status_code == 403
    program = {"authorization": f"Bearer {cluster.token}"}
    async with httpx2.AsyncClient(base_url=cluster.url, headers=browser.headers | program) as api:
        assert (await api.get("/jobs/guarded")).status_code == 200
        assert (await api.post("/jobs/guarded/pause", data={"csrf": csrf})).status_code == 403
    assert await state_of(cluster, job) == "active"


async def test_get_never_changes_anything(cluster: Cluster, browser: httpx2.AsyncClient, job: JobSpec) -> None:
    csrf = (await open_page(browser, "/jobs/guarded")).csrf
    walked = all_routes(cluster)
    wishes = {"csrf": csrf, "version": "1", "to": "1", "expression": "every 1h", "job": "by-get", "command": "true"}
    for method, path in walked:
        if method == "POST" and path != "/login":
            # Some show a page of the same address, if the job is what they are about.
            statuses = (200, 404, 422) if ("GET", path) in walked else (405,)
            path = path.replace("anything", "guarded")
            assert (await browser.get(path, params=wishes)).status_code in statuses, path
    assert await state_of(cluster, job) == "active"
    found = await job_views.list_jobs(cluster.database, tenant=DEFAULT_TENANT)
    assert [(j.name, j.version, j.spec) for j in found.items] == [("guarded", 1, job)]


KEPT = (
    "alert_rules", "backfills", "blackouts", "calendars", "channels", "dead_letters", "executions", "history",
    "idempotency_keys", "job_needs", "job_versions", "jobs", "outbox", "queues", "runs", "run_steps", "silences",
    "tokens", "triggers", "workflow_versions",
)  # fmt: skip


async def contents(cluster: Cluster) -> dict[str, str]:
    """A digest of every table that holds what people made."""
    async with cluster.database.connection() as connection:
        return {
            table: await connection.fetchval(f"SELECT md5(string_agg(t::text, '' ORDER BY t::text)) FROM {table} t")
            for table in KEPT
        }


async def test_no_page_changes_anything_by_being_looked_at(
    cluster: Cluster, browser: httpx2.AsyncClient, job: JobSpec
) -> None:
    before = await contents(cluster)
    for method, path in all_routes(cluster):
        if method == "GET" and path != "/ui/stream":
            answer = await browser.get(path.replace("anything", "guarded"), params={"doctor": "1", "q": "guarded"})
            assert answer.status_code < 500, path
    assert await contents(cluster) == before


async def test_no_change_without_the_token_of_its_form(
    cluster: Cluster, browser: httpx2.AsyncClient, job: JobSpec
) -> None:
    before = await contents(cluster)
    wishes = {"name": "sneaky", "scope_admin": "1", "lasts": "2h", "job": "sneaky", "command": "true", "reason": "x"}
    walked = [path for method, path in all_routes(cluster) if method == "POST" and path != "/login"]
    assert len(walked) > 25
    for path in walked:
        for csrf in ({}, {"csrf": "0" * 64}):
            answer = await browser.post(path.replace("anything", "guarded"), data={**wishes, **csrf})
            assert answer.status_code == 403, path
    assert await contents(cluster) == before


async def test_a_fault_of_ours_is_told_with_the_name_the_log_has(
    postgres: EmbeddedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    async with (
        started(await clone(postgres)) as broken,
        httpx2.AsyncClient(base_url=broken.url, headers=NAVIGATION, timeout=30) as browser,
    ):
        await sign_in(browser, broken.token)
        async with broken.database.connection() as connection:
            await connection.execute("ALTER TABLE calendars RENAME TO calendars_gone")
        answer = await browser.get("/settings")
    assert answer.status_code == 500
    page = Page(answer.text)
    assert "calendars" not in page.text, "none of our inside is shown"
    (name,) = re.findall(r"as request ([0-9a-f]{12})", page.text)
    assert name in capsys.readouterr().out


async def test_a_form_beyond_measure_is_refused(browser: httpx2.AsyncClient, job: JobSpec) -> None:
    csrf = (await open_page(browser, "/jobs/guarded")).csrf
    answer = await browser.post("/jobs/guarded/pause", data={"reason": "x" * 300_000, "csrf": csrf})
    assert answer.status_code == 413
    answer = await browser.post("/jobs/guarded/pause", data={"csrf": csrf, **{f"x{n}": "" for n in range(600)}})
    assert answer.status_code == 413
    assert "601 fields; the limit is 500" in answer.text


@pytest.mark.parametrize("number", ["9" * 19, "9" * 5000, "-1", "²", "1e400", "x" * 2000])
async def test_a_number_beyond_measure_in_a_form_is_refused(browser: httpx2.AsyncClient, number: str) -> None:
    page = await open_page(browser, "/new")
    fields = {name: number for name in page.filled() if name != "csrf"}
    answer = await browser.post("/new", data={**page.filled(), **fields, "name": "numbers"})
    assert 400 <= answer.status_code < 500 or "problem" in answer.text
    for name in fields:
        answer = await browser.post("/new", data={**page.filled(), "name": "numbers", name: number})
        assert answer.status_code < 500, name
    for path in ("/executions", "/jobs", "/audit", "/calendar", "/failures", "/workflows", "/search", "/queues"):
        for name in ("cursor", "page", "limit", "q", "filter", "day", "before", "place", "version"):
            answer = await browser.get(path, params={name: number})
            assert answer.status_code < 500, (path, name)


async def test_what_is_not_there_is_told_to_people_on_a_page_and_to_programs_as_a_problem(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    for method, path, status, words in (
        ("GET", "/nowhere", 404, "No route at this path"),
        ("GET", "/jobs/guarded/nowhere", 404, "No route at this path"),
        ("GET", "/logout", 405, "Method not allowed on this path"),
        ("PUT", "/jobs", 405, "Method not allowed on this path"),
    ):
        answer = await browser.request(method, path)
        assert answer.status_code == status, path
        page = Page(answer.text)
        assert words in page.text, path
        assert {"/", "/jobs"} <= {a.get("href") for a in page.all("a")}
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        if status == 405:
            assert "POST" in answer.headers["allow"] or "GET" in answer.headers["allow"]
        for accept in ("*/*", "application/json"):
            told = await browser.request(method, path, headers={"accept": accept})
            assert told.status_code == status, path
            assert told.headers["content-type"] == "application/problem+json"
            assert told.json()["status"] == status


async def test_a_stranger_at_a_wrong_path_is_asked_to_sign_in(stranger: httpx2.AsyncClient) -> None:
    answer = await stranger.get("/nowhere?x=1")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?then=/nowhere%3Fx%3D1")
    assert (await stranger.get("/nowhere", headers={"accept": "*/*"})).status_code == 404
