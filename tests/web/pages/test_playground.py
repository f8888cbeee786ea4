from __future__ import annotations

from urllib.parse import urlencode

import httpx2
import pytest

from mainspring.cli.serve import DEFAULT_TENANT as TENANT
from mainspring.domain.job import JobSpec, NoopTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.intake import jobs
from mainspring.views import fire_density
from mainspring.views import fires as fire_views
from mainspring.web import fire_density_cache
from mainspring.web.draw.filters import stamp
from mainspring.web.forms.schedule_text import read
from tests.conftest import Cluster
from tests.support.pages import Page, open_page

pytestmark = pytest.mark.anyio

HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(2)>'"


def asking(text: str, **more: str) -> str:
    return f"/playground?{urlencode({'expression': text, **more})}"


def instants(page: Page) -> list[str]:
    """The fires that the page counts down to."""
    return [str(a["datetime"]) for a in page.all("time") if "data-until" in a]


async def test_the_playground_starts_with_an_example_and_reads_the_words_it_prints(browser: httpx2.AsyncClient) -> None:
    first = await open_page(browser, "/playground")
    assert "At 02:30 on Monday to Friday" in first.text and len(instants(first)) == 10
    emptied = await open_page(browser, "/playground?expression=")
    assert instants(emptied) == []
    for words in ("every 10 minutes", "at 02:30 on Monday to Friday", "every hour at minute 20"):
        page = await open_page(browser, asking(words))
        assert words[0].upper() + words[1:] in page.text
        assert len(instants(page)) == 10


async def test_the_empty_page_says_what_can_be_typed(browser: httpx2.AsyncClient) -> None:
    page = await open_page(browser, "/playground")
    for sample in ("0 2 * * *", "@daily", "every 10m", "RRULE:FREQ=MONTHLY;BYDAY=1MO"):
        assert sample in page.text
    assert "explained" in page.ids()
    assert any(a.get("value") == "Europe/Berlin" for a in page.all("option"))
    assert next(a for a in page.all("a") if a.get("aria-current"))["href"] == "/playground"


@pytest.mark.parametrize(
    ("text", "zone", "says"),
    [
        ("0 2 * * *", "Europe/Berlin", "At 02:00 every day (Europe/Berlin)"),
        ("@daily", "", "At 00:00 every day"),
        ("every 10m", "", "Every 10 minutes"),
        ("2099-01-01T09:00", "Asia/Tokyo", "Once at 2099-01-01T09:00 (Asia/Tokyo)"),
        ("DTSTART:20270104T090000\nRRULE:FREQ=MONTHLY;BYDAY=1MO", "America/New_York", "Monday"),
        ('{"cron": "30 2 * * *", "timezone": "Europe/Berlin", "gap": "skip"}', "", "At 02:30 every day"),
    ],
)
async def test_page_and_api_give_the_same_words_and_instants(
    cluster: Cluster, browser: httpx2.AsyncClient, text: str, zone: str, says: str
) -> None:
    page = await open_page(browser, asking(text, zone=zone))
    async with httpx2.AsyncClient(base_url=cluster.url, headers={"authorization": f"Bearer {cluster.token}"}) as api:
        answer = (await api.post("/api/v1/schedules:preview", json={"schedule": read(text, zone)})).json()
    assert says in page.text
    assert answer["description"][1:] in page.text
    shown, told = instants(page), [fire.replace("Z", ".000Z") for fire in answer["fires"]]
    if not text.startswith("every"):
        assert shown == told
    # An interval begins at the second somebody asks, so two questions have two answers.
    assert len(shown) == len(told)
    for note in answer["notes"]:
        assert note in page.text


async def test_instants_are_shown_in_the_zones_of_schedule_reader_and_utc(browser: httpx2.AsyncClient) -> None:
    page = await open_page(browser, asking("0 2 * * *", zone="Europe/Berlin", local="Asia/Kathmandu"))
    assert "Europe/Berlin schedule" in page.text
    assert page.text.count("02:00:00 CE") == 10
    assert page.text.count("+0545") == 10
    assert page.text.count(":00:00 UTC") == 10
    without_script = await open_page(browser, asking("0 2 * * *", zone="Europe/Berlin", local="Nowhere/Else"))
    assert "Nowhere" not in without_script.text
    assert without_script.text.count(":00:00 UTC") == 10


async def test_the_script_gets_only_the_part_that_changes(browser: httpx2.AsyncClient) -> None:
    answer = await browser.get(asking("0 2 * * *", part="1"), headers={"accept": "*/*"})
    assert answer.text.startswith('<div id="explained">')
    assert "<html" not in answer.text
    whole = (await browser.get(asking("0 2 * * *"))).text
    assert 'data-preview="explained"' in whole
    assert "/static/preview.js?v=" in whole
    assert (await browser.get("/static/preview.js")).status_code == 200


@pytest.mark.parametrize(
    ("text", "zone", "words"),
    [
        ("61 * * * *", "", ("cron, minute: 61 is out of range", "61 * * * *\n^^", "Allowed are 0-59")),
        ("0 2 * * MOO", "", ("cron, day of week: 'MOO' is not a value", "0 2 * * MOO\n        ^^^", "SUN-SAT")),
        ("every 10x", "", ("every: '10x' is not a duration", "every 10x\n      ^^^", "10m")),
        (
            "FREQ=MONTLY;BYDAY=1MO",
            "",
            ("rrule: FREQ=MONTLY is not known", "FREQ=MONTLY;BYDAY=1MO\n^^^^^^^^^^^", "MONTHLY"),
        ),
        (
            "0 2 * * *",
            "Europe/Berln",
            ("timezone: unknown", "Europe/Berln\n^^^^^^^^^^^^", "Did you mean Europe/Berlin?"),
        ),
        ("0 2 31 2 *", "", ("cron: never fires", "0 2 31 2 *\n^^^^^^^^^^", "31 February")),
        ("H 2 * * *", "", ("cron, minute: H needs a job name", "H 2 * * *\n^", "H is the job's own value")),
        ('{"corn": 1}', "", ("corn: unknown field 'corn'", '{"corn": 1}\n  ^^^^', "Did you mean 'cron'?")),
        ("{", "", ("schedule: invalid JSON", "{\n^", "for example")),
        ("2001-01-01T00:00", "", ("at: 2001-01-01T00:00 is in the past", "^^^", "choose a later time")),
        (HOSTILE, "", ("cron", "^", "")),
    ],
)
async def test_a_slip_is_shown_with_a_caret_and_what_to_write(
    browser: httpx2.AsyncClient, text: str, zone: str, words: tuple[str, str, str]
) -> None:
    page = await open_page(browser, asking(text, zone=zone))
    assert page.active_parts() == []
    title, pointed, hint = words
    assert title in page.text
    assert pointed in page.raw_text
    assert hint.lower() in page.text.lower()
    assert instants(page) == []


async def test_hostile_texts_stay_texts(browser: httpx2.AsyncClient) -> None:
    for path in (
        asking("@daily", zone=HOSTILE, job=HOSTILE, local=HOSTILE),
        asking(f'{{"cron": "{HOSTILE[1:]}"}}'),
        asking(f"every {HOSTILE}"),
    ):
        assert (await open_page(browser, path)).active_parts() == []


async def test_h_is_spread_by_the_name_that_a_job_then_has(cluster: Cluster, browser: httpx2.AsyncClient) -> None:
    page = await open_page(browser, asking("H H * * *", zone="Asia/Tokyo", job="spread"))
    spec = JobSpec(name="spread", task=NoopTask(), schedule=ScheduleSpec(cron="H H * * *", timezone="Asia/Tokyo"))
    await jobs.create(cluster.database, spec, tenant=TENANT, by="test")
    fires = await fire_views.of_job(cluster.database, "spread", tenant=TENANT, count=10)
    assert instants(page) == [stamp(fire) for fire in fires.fires]
    assert "mainspring add spread --cron 'H H * * *' --tz Asia/Tokyo -- ./my-command" in page.text


async def test_a_schedule_goes_on_to_the_command_line_and_to_a_new_job(browser: httpx2.AsyncClient) -> None:
    page = await open_page(browser, asking("*/7 * * * *", zone="Asia/Tokyo"))
    assert "mainspring add my-job --cron '*/7 * * * *' --tz Asia/Tokyo -- ./my-command" in page.text
    onward = next(str(a["href"]) for a in page.all("a") if str(a["href"]).startswith("/new?"))
    form = await open_page(browser, onward)
    assert "*/7 * * * *" in form.text
    assert "Asia/Tokyo" in [i.get("value") for i in form.all("input")]
    api_only = await open_page(browser, asking('{"cron": "0 2 * * *", "gap": "skip"}'))
    assert "mainspring add" not in api_only.text
    assert '"gap": "skip"' in api_only.text


async def test_a_crowded_minute_is_told_with_a_quieter_one(
    cluster: Cluster, browser: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fire_density_cache, "FRESH_S", 0.0)
    assert "crowded" not in (await open_page(browser, asking("45 3 * * *"))).text
    for n in range(71):
        minute = 45 if n else 44
        spec = JobSpec(name=f"many-{n:02}", task=NoopTask(), schedule=ScheduleSpec(cron=f"{minute} 3 * * *"))
        await jobs.create(cluster.database, spec, tenant=TENANT, by="test")
    page = await open_page(browser, asking("45 3 * * *"))
    assert page.text.count("crowded, 70") == 10
    assert "(estimate)" not in page.text
    # 44 has one job, so 46 is the nearest that is quiet; the wall clock of Kathmandu stands at 9:30 then.
    assert "Minute 46 of the hour is quieter: 0 executions due at most. Use 46 3 * * *" in page.text
    there = await open_page(browser, asking("30 9 * * *", zone="Asia/Kathmandu"))
    assert "crowded, 70" in there.text
    assert "Use 31 9 * * *" in there.text
    proposal = next(a for a in there.all("a") if a.get("data-expression") == "31 9 * * *")
    assert "crowded" not in (await open_page(browser, f"/playground{proposal['href']}")).text


async def test_an_estimate_is_called_one(
    cluster: Cluster, browser: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fire_density_cache, "FRESH_S", 0.0)
    monkeypatch.setattr(fire_density, "MAX_SCHEDULES", 1)
    for n in range(2):
        spec = JobSpec(name=f"apart-{n}", task=NoopTask(), schedule=ScheduleSpec(cron=f"{n} 5 * * *"))
        await jobs.create(cluster.database, spec, tenant=TENANT, by="test")
    assert "(estimate)" in (await open_page(browser, asking("@daily"))).text
