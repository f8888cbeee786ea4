from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

import httpx2
import pytest

from mainspring import wire
from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.domain.job import JobSpec, NoopTask, ShellTask
from mainspring.domain.retry import RetryPolicy
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import dead_letters, jobs
from mainspring.store import attention, executions
from mainspring.views import fire_calendar, fires
from mainspring.views import jobs as job_views
from mainspring.views.fire_calendar import PastHour
from mainspring.views.overview import overview
from mainspring.views.verdict import Verdict, verdict
from mainspring.web import fire_history_cache as kept
from mainspring.web.fire_history_cache import FRESH_S, FireHistoryCache
from tests.conftest import Cluster
from tests.support.history import insert_past
from tests.support.live_page import listening, submit, until
from tests.support.pages import open_page

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 11, 16, 6, 30, tzinfo=UTC)


async def test_the_first_page_tells_how_long_the_oldest_waits(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    spec = JobSpec(name="stuck", task=NoopTask(), queue="nobody")
    job_id = await jobs.create(cluster.database, spec, tenant=TENANT, by="test")
    await submit(cluster, job_id)
    await submit(cluster, job_id)
    async with cluster.database.connection() as connection:
        assert [h.job for h in await attention.line_heads(connection, tenant=TENANT, limit=5)] == ["stuck"]
        assert await attention.line_heads(connection, tenant=TENANT + 1, limit=5) == []
    async with listening(browser, "/ui/stream?view=now") as events:
        told = await until(events, "oldest")
        assert 'id="charts"' in told.data and 'id="needs-you"' in told.data
    page = await open_page(browser, "/")
    assert "no worker serves this queue" in page.text and "mainspring worker -q nobody" in page.text
    assert page.active_parts() == []
    assert "0 fires in 24 hours" in str(page.all("svg"))
    await jobs.delete(cluster.database, job_id, tenant=TENANT, by="test")


async def fail(cluster: Cluster, job_id: UUID) -> UUID:
    made = await submit(cluster, job_id)
    await cluster.context.live.until_final(made, tenant=TENANT, wait_s=30)
    return made


async def judged(cluster: Cluster) -> Verdict:
    return verdict(await overview(cluster.database, cluster.context.run_views, tenant=TENANT))


async def test_the_verdict_recovers_when_failures_are_fixed_paused_or_dismissed(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    once = RetryPolicy(max=0)
    ids = [
        await jobs.create(
            cluster.database,
            JobSpec(name=name, task=ShellTask(argv=("sh", "-c", "echo no ledger >&2; exit 3")), retries=once),
            tenant=TENANT,
            by="test",
        )
        for name in ("fixed", "paused", "dismissed")
    ]
    async with cluster.worker():
        await fail(cluster, ids[0])
        letters = [await fail(cluster, job_id) for job_id in ids]
        found = await overview(cluster.database, cluster.context.run_views, tenant=TENANT)
        assert str(verdict(found)) == "3 jobs failing."
        assert [(f.job, f.streak) for f in found.attention.failing] == [("dismissed", 1), ("paused", 1), ("fixed", 2)]
        async with listening(browser, "/ui/stream?view=now") as events:
            assert "exit code 3: no ledger" in (await until(events, "2 in a row")).data
        await jobs.patch(
            cluster.database, ids[0], {"task": {"kind": "shell", "argv": ["true"]}}, tenant=TENANT, by="test"
        )
        await fail(cluster, ids[0])
        assert str(await judged(cluster)) == "2 jobs failing.", "its latest execution succeeded"
        await jobs.pause(cluster.database, ids[1], tenant=TENANT, reason="the ledger is moved")
        assert str(await judged(cluster)) == "1 job failing."
        await dead_letters.dismiss(cluster.database, letters[2], reason="known", tenant=TENANT, by="test")
        good = await judged(cluster)
        assert good.tone == "good" and str(good).startswith("All is well: ")
        # One definition of failure: the tile is the sum of the chart, and both count every failed execution.
        found = await overview(cluster.database, cluster.context.run_views, tenant=TENANT)
        async with cluster.database.connection() as connection:
            since = found.now - timedelta(days=1)
            assert found.failures == await executions.failed_count(connection, tenant=TENANT, since=since) == 4
        async with listening(browser, "/ui/stream?view=now") as events:
            assert '<strong class="bad">4</strong>' in (await until(events, "4 failures in 24 hours")).data
        # So does the list behind the tile: by when they ended, not by when they were due.
        long_ago = [
            await insert_past(cluster.database, ids[0], "failed", due_h=30, ended_h=ended_h) for ended_h in (1, 25)
        ]
        found = await overview(cluster.database, cluster.context.run_views, tenant=TENANT)
        assert found.failures == sum(found.failed_by_hour) == 5
        tile = next(a["href"] or "" for a in (await open_page(browser, "/")).all("a") if "ended" in (a["href"] or ""))
        listed = {name for name in (await open_page(browser, tile)).ids() if name.startswith("e-")}
        assert len(listed) == 5 and f"e-{long_ago[0]}" in listed and f"e-{long_ago[1]}" not in listed


async def test_a_blackout_over_everything_has_a_banner_and_no_fires_are_promised(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    spec = JobSpec(name="minutely", task=NoopTask(), schedule=ScheduleSpec(every="1m"))
    await jobs.create(cluster.database, spec, tenant=TENANT, by="test")
    async with cluster.client() as client:
        now = datetime.now(UTC)
        made = await client.add_blackout(
            wire.NewBlackout(
                start_at=now - timedelta(minutes=1), end_at=now + timedelta(hours=3), reason="storage moves"
            )
        )
        why = await client.why_job("minutely")
        assert why.reasons[0].code == "blackout" and "storage moves" in why.reasons[0].message
    upcoming = await fires.upcoming(cluster.database, tenant=TENANT)
    assert {name for at, _, name in upcoming if at < now + timedelta(hours=2)} == set()
    assert "minutely" in {name for _, _, name in upcoming}, "it fires after the blackout"
    async with cluster.worker():
        assert (await judged(cluster)).tone == "held"
    for path in ("/", "/jobs", "/calendar", "/jobs/minutely"):
        assert "Blackout: no schedule fires until" in (await open_page(browser, path)).text, path
    page = await open_page(browser, "/")
    answer = await browser.post(f"/settings/blackouts/{made.blackout_id}/end", data={"csrf": page.csrf, "back": "/"})
    assert answer.status_code == 303 and answer.headers["location"] == "/"
    assert "Blackout: no" not in (await open_page(browser, "/")).text
    assert "minutely" in {name for at, _, name in await fires.upcoming(cluster.database, tenant=TENANT)}


async def test_times_are_in_the_zone_of_the_reader_on_pages_and_forms(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    schedule = ScheduleSpec(cron="30 6 * * *", timezone="Europe/Berlin")
    job_id = await jobs.create(
        cluster.database, JobSpec(name="zoned", task=NoopTask(), schedule=schedule), tenant=TENANT, by="test"
    )
    page = await open_page(browser, "/jobs/zoned")
    assert "Times in UTC" in page.text
    browser.cookies.set("mainspring_zone", "Asia%2FTokyo")
    created = (await job_views.get(cluster.database, "zoned", tenant=TENANT)).created_at
    page = await open_page(browser, "/jobs/zoned")
    assert "Times in Asia/Tokyo" in page.text and "06:30:00 CE" in page.text, "the job's own zone is beside it"
    assert f"{created.astimezone(ZoneInfo('Asia/Tokyo')):%H:%M:%S}" in page.text
    tokyo = await open_page(browser, "/")
    assert tokyo.text.count("UTC") == 1, "as a choice of the reader, and nowhere else"
    form = {"csrf": page.csrf, "until": "2027-01-01T09:00", "reason": "new year"}
    assert (await browser.post(f"/jobs/{job_id}/pause", data=form)).status_code == 303
    paused = await job_views.get(cluster.database, "zoned", tenant=TENANT)
    assert paused.paused_until == datetime(2027, 1, 1, 0, 0, tzinfo=UTC)
    assert "1 Jan 2027 09:00:00" in (await open_page(browser, "/jobs/zoned")).text
    browser.cookies.set("mainspring_zone", "Nowhere%2FElse")
    assert "Times in UTC" in (await open_page(browser, "/jobs/zoned")).text


async def test_times_inside_texts_are_in_the_zone_of_the_reader_too(
    cluster: Cluster, browser: httpx2.AsyncClient
) -> None:
    """Reasons, notes and details have their times in UTC, as the API does: pages show them like every other time."""
    spec = JobSpec(name="texts", task=NoopTask(), schedule=ScheduleSpec(cron="30 6 * * *", timezone="Asia/Tokyo"))
    job_id = await jobs.create(cluster.database, spec, tenant=TENANT, by="test")
    begin = datetime(2027, 1, 1, 20, 0, tzinfo=UTC)
    async with cluster.client() as client:
        window = wire.NewBlackout(start_at=begin, end_at=begin + timedelta(days=300), job="texts", reason="new year")
        made = await client.add_blackout(window)
        await client.pause_job("texts", "inventory")
    await insert_past(cluster.database, job_id, "skipped", due_h=30, ended_h=30)
    browser.cookies.set("mainspring_zone", "Asia%2FTokyo")
    for path in ("", "/ledger", "/why", "/stats", "/versions", "/chart"):
        page = await open_page(browser, f"/jobs/texts{path}")
        assert page.text.count("UTC") == 1, f"{path}: as a choice of the reader, and nowhere else: {page.text}"
    assert "was skipped" in (await open_page(browser, "/jobs/texts/why")).text
    audit = await open_page(browser, f"/audit?subject={job_id}")
    assert audit.text.count("UTC") == 1 and "null" not in audit.text
    everything = await open_page(browser, "/audit?action=blackout")
    assert "window: 2 Jan 2027 05:00:00 to 29 Oct 2027 05:00:00" in " ".join(everything.text.split())
    page = await open_page(browser, "/settings")
    await browser.post(f"/settings/blackouts/{made.blackout_id}/end", data={"csrf": page.csrf, "back": "/"})


class Hands:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.at = 0.0

    def monotonic(self) -> float:
        return self.at

    def now_ms(self) -> float:
        raise AssertionError("the caller says what time it is")


async def test_a_day_that_is_over_is_read_once(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def day(_: object, of: object, *, tenant: int, hidden: object) -> dict[int, PastHour]:
        asked.append(str(of))
        return {1000 * int(NOW.timestamp()) - 1_800_000: PastHour(10, 1, True)} if str(of) == "2026-11-16" else {}

    monkeypatch.setattr(kept, "past_day", day)
    assert fire_calendar.past_day is not day
    clock = Hands()
    pasts = FireHistoryCache(clock)
    bars = await pasts.bars(cluster.database, NOW, tenant=TENANT)
    assert asked == ["2026-11-15", "2026-11-16"]
    assert [(bar.at.hour, bar.height, bar.failed) for bar in bars][-2:] == [(5, 0.0, 0.0), (6, 100.0, 10.0)]
    await pasts.bars(cluster.database, NOW, tenant=TENANT)
    clock.at += FRESH_S + 1
    await pasts.bars(cluster.database, NOW + timedelta(minutes=1), tenant=TENANT)
    assert asked[2:] == ["2026-11-16"]
    # After midnight the day before is read once more: it was not over when it was counted.
    clock.at += FRESH_S + 1
    await pasts.bars(cluster.database, NOW + timedelta(days=1), tenant=TENANT)
    assert asked[3:] == ["2026-11-16", "2026-11-17"]
    clock.at += FRESH_S + 1
    await pasts.bars(cluster.database, NOW + timedelta(days=1), tenant=TENANT)
    assert asked[5:] == ["2026-11-17"]
