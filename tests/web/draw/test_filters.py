from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mainspring import wire
from mainspring.domain.execution import OUTCOMES, STATES
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.domain.start_delay import OwnLimits
from mainspring.views.attention import Attention, FailingJob, PendingApproval, UnservedQueue
from mainspring.views.lateness import LateJob
from mainspring.views.overview import Overview, start_delays
from mainspring.views.verdict import verdict
from mainspring.web.draw.filters import browser_name, clock, raw_schedule, stamp, wall, zoned
from mainspring.web.draw.states import STATE_STYLES
from mainspring.web.draw.terminal_output import coloured, render
from mainspring.web.draw.timeline import MIN_WIDTH, WIDTH, timeline
from mainspring.web.urls import local_path
from tests.support.pages import Page

NOW = datetime(2026, 11, 15, 12, 0, 0, 250_000, tzinfo=UTC)


def after(ms: int) -> datetime:
    return NOW + timedelta(milliseconds=ms)


def execution(**values: Any) -> wire.Execution:
    plain = wire.Execution(
        execution_id=UUID(int=1),
        job_id=UUID(int=2),
        job="hello",
        version=1,
        state="succeeded",
        trigger="fire",
        queue="short",
        priority=5,
        attempt=1,
        fire_at=NOW,
        due_at=NOW,
        queued_at=after(2),
        started_at=after(5),
        finished_at=after(1005),
        duration_ms=1000,
        exit_code=0,
        worker="w",
        cancelling=False,
        reason=None,
        error=None,
        result=None,
        params=None,
        created_by=None,
        fires=1,
    )
    return msgspec.structs.replace(plain, **values)


def told(e: wire.Execution, now: datetime = NOW) -> list[str]:
    """The timeline as one list of words."""
    words = []
    for step in timeline(e, now):
        if step.gap:
            words.append(" ".join(filter(None, (step.gap.before, step.gap.duration, step.gap.after))))
        words.append(step.name)
    return words


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, ["due", "scheduled after 2 ms", "queued", "waited 3 ms for a worker", "started", "ran 1 s", "succeeded"]),
        (
            # Straight to a worker: queued and started in one instant.
            {"started_at": after(2)},
            ["due", "scheduled after 2 ms", "queued", "waited 0 ms for a worker", "started", "ran 1 s", "succeeded"],
        ),
        (
            {"state": "running", "finished_at": None},
            [
                "due",
                "scheduled after 2 ms",
                "queued",
                "waited 3 ms for a worker",
                "started",
                "running for 1 min",
                "ended",
            ],
        ),
        (
            {"state": "queued", "attempt": 0, "started_at": None, "finished_at": None},
            ["due", "scheduled after 2 ms", "queued", "waiting 1 min for a worker", "started"],
        ),
        (
            {"state": "cancelled", "attempt": 0, "started_at": None},
            ["due", "scheduled after 2 ms", "queued", "never started; ended after 1 s", "cancelled"],
        ),
        (
            {"state": "waiting", "due_at": after(4000), "queued_at": None, "finished_at": None},
            ["due", "attempt 1 and backoff 4 s", "due again"],
        ),
        ({"state": "waiting", "attempt": 0, "queued_at": None, "started_at": None, "finished_at": None}, ["due"]),
        (
            {
                "attempt": 3,
                "due_at": after(4000),
                "queued_at": after(4001),
                "started_at": after(4002),
                "finished_at": after(4500),
            },
            [
                "due",
                "attempts 1 to 2 and backoff 4 s",
                "due again",
                "scheduled after 1 ms",
                "queued",
                "waited 1 ms for a worker",
                "started",
                "ran 1 s",
                "succeeded",
            ],
        ),
        (
            # Rescued at once: the start on record is that of the lost attempt.
            {"state": "queued", "queued_at": after(9000), "started_at": after(5), "finished_at": None},
            ["due", "attempt 1, requeued after 9 s", "queued", "waiting 51 s for a worker", "started"],
        ),
        (
            {"state": "skipped", "attempt": 0, "queued_at": None, "started_at": None, "finished_at": after(1)},
            ["due", "never started; ended after 1 ms", "skipped"],
        ),
    ],
)
def test_gaps_are_named(values: dict[str, Any], expected: list[str]) -> None:
    assert told(execution(**values), after(60_002)) == expected


@given(st.lists(st.integers(0, 10**9), min_size=3, max_size=3))
def test_no_gap_is_invisible_and_the_bar_is_full(gaps: list[int]) -> None:
    at = [after(sum(gaps[:n])) for n in (1, 2, 3)]
    steps = timeline(execution(queued_at=at[0], started_at=at[1], finished_at=at[2]), NOW)
    bars = [step.gap for step in steps if step.gap]
    assert all(bar.width >= MIN_WIDTH for bar in bars)
    assert abs(bars[-1].x + bars[-1].width - WIDTH) <= len(bars)


def test_every_state_has_a_look() -> None:
    assert set(STATES) | set(OUTCOMES) <= set(STATE_STYLES)
    assert {*msgspec.inspect.type_info(wire.JobState).values} <= set(STATE_STYLES)  # type: ignore[attr-defined]
    for one in STATE_STYLES.values():
        for other in STATE_STYLES.values():
            assert one is other or one.label != other.label


def test_times_show_as_much_date_as_needed() -> None:
    assert clock(NOW, NOW) == "12:00:00"
    assert clock(NOW, NOW, millis=True) == "12:00:00.250"
    assert clock(NOW - timedelta(days=1), NOW) == "14 Nov 12:00:00"
    assert clock(NOW - timedelta(days=400), NOW) == "11 Oct 2025 12:00:00"
    assert stamp(NOW) == "2026-11-15T12:00:00.250Z"
    assert wall(NOW, "Europe/Berlin", NOW) == "Sun 15 Nov 13:00:00 CET"


@given(st.text() | st.text(st.sampled_from("\x1b[]0;31mK<&\"'>\r\n\x07a")))
def test_output_never_becomes_markup(text: str) -> None:
    page = Page(str(coloured(text)))
    assert {tag for tag, _ in page.elements} <= {"i", "small"}
    assert all(set(attributes) <= {"class", "title"} for _, attributes in page.elements)
    assert "\x1b" not in coloured(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[1;31mbad\x1b[0m good", '<i class="bold c-red">bad</i> good'),
        ("\x1b[32mgreen\x1b[39m plain", '<i class="c-green">green</i> plain'),
        ("\x1b[2J\x1b[Hcleared\x1b[?25l", "cleared"),
        ("\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link", "textlink"),
        ("10 %\r20 %\r\n", '20 %<small title="overwritten 1 times">↻1</small>\n'),
        (
            "\x1b[32m1\r2\r\r3\x1b[0m\nx",
            '<i class="c-green">3</i><small title="overwritten 2 times">↻2</small>\nx',
        ),
        ("a\r\nb\r\n", "a\nb\n"),
        ("\x1b[38;5;31mx\x1b[48;2;31;32;33;1my", 'x<i class="bold">y</i>'),
        ("a\x00b\x08c\td", "abc\td"),
        ("\x1b[38;5;9mindexed\x1b[m", "indexed"),
        ("\x1b[99999999999999999999mx", "x"),
    ],
)
def test_terminal_sequences(text: str, expected: str) -> None:
    assert str(coloured(text)) == expected


def test_attempts_are_told_apart() -> None:
    chunks = [wire.LogChunk(attempt=n, seq=0, stream="stdout", text="x") for n in (1, 2)]
    assert str(render(chunks)) == (
        '<span class="out tail" data-at="1.0">x</span><span class="attempt">attempt 2</span>'
        '<span class="out tail" data-at="2.0">x</span>'
    )
    assert "attempt" not in render(chunks[1:], after_attempt=2)


def overview(**values: Any) -> Overview:
    plain: dict[str, Any] = dict.fromkeys(
        ("paused", "running", "queued", "waiting", "suspects", "slots", "busy"), 0
    ) | {
        "now": NOW,
        "jobs": 12,
        "workers": 2,
        "shards": 64,
        "shards_held": 64,
        "delays": [3],
        "recent": [],
        "upcoming": [],
    }
    return Overview(**(plain | values))


def attention(**values: Any) -> dict[str, Attention]:
    return {"attention": Attention(**values)}


ID = UUID(int=1)
FAILING = FailingJob(ID, "report", ID, "exit code 3: no", 2, NOW, NOW)
ALERT = wire.Alert(
    alert_id=ID, rule="r", key="", severity="critical", state="firing", value=1, threshold=0, summary="", since_at=NOW,
    fired_at=NOW, told_at=NOW, resolved_at=None,
)  # fmt: skip


@pytest.mark.parametrize(
    ("values", "tone", "sentence"),
    [
        ({}, "good", "All is well: 12 jobs on time."),
        ({"jobs": 1284, "paused": 3}, "good", "All is well: 1,281 jobs on time, 3 paused."),
        ({"jobs": 0}, "good", "Nothing is scheduled yet."),
        # Failures that were fixed, dismissed or belong to paused jobs need nobody.
        ({"failed_by_hour": [90, 2]}, "good", "All is well: 12 jobs on time."),
        # So do late starts when nothing is queued any more.
        ({"delays": [5000]}, "good", "All is well: 12 jobs on time."),
        ({"delays": [5000], "queued": 1}, "bad", "fires start late."),
        (attention(failing=[FAILING]), "bad", "1 job failing."),
        (
            {"suspects": 1, "delays": [5000], "queued": 1, **attention(failing=[FAILING, FAILING])},
            "bad",
            "2 jobs failing, fires start late and 1 worker missed a heartbeat.",
        ),
        (attention(alerts=[ALERT, ALERT]), "bad", "2 alerts firing."),
        (
            attention(
                approvals=[PendingApproval(ID, "release", "sign", "", NOW, ID, 1)],
                unserved=[UnservedQueue("gpu", NOW)],
                late=[LateJob(ID, "sync", ID, NOW, "all 2 matching workers are busy", "busy")],
            ),
            "bad",
            "1 approval waiting, 1 queue without workers and 1 job late.",
        ),
        ({"shards_held": 0}, "bad", "Nothing fires: no scheduler is alive."),
        ({"shards_held": 60}, "bad", "4 of 64 shards do not fire: no scheduler holds them."),
        ({"workers": 0}, "bad", "Fires are decided, but no worker is alive to run them."),
        (
            {"workers": 0, "queued": 3},
            "bad",
            "Fires are decided, but no worker is alive to run them; 3 executions waiting.",
        ),
    ],
)
def test_the_verdict_is_one_sentence(values: dict[str, Any], tone: str, sentence: str) -> None:
    found = verdict(overview(**values))
    assert (found.tone, str(found)) == (tone, sentence)
    if tone == "bad":
        assert any(part.path for part in found.parts), "what is wrong is a link"


def test_only_first_starts_of_fires_count_as_start_delay() -> None:
    fires = [execution(started_at=after(n)) for n in range(100)]
    others = [execution(trigger="manual", started_at=after(9999)), execution(attempt=2, started_at=after(9999))]
    found = overview(delays=start_delays(fires + others, {}))
    assert found.late_ms == 94 and len(found.delays) == 100
    assert overview(delays=start_delays(others, {})).late_ms is None


@pytest.mark.parametrize(
    ("limits", "delay_ms"),
    [
        (OwnLimits(), 9000),
        (OwnLimits("queue_all"), 500),
        (OwnLimits(concurrency=True), 1000),
        (OwnLimits(spacing_ms=8000.0), 2000),
        (OwnLimits(concurrency=True, spacing_ms=500.0), 1000),
    ],
)
def test_the_start_delay_does_not_count_waits_for_the_jobs_own_limits(limits: OwnLimits, delay_ms: int) -> None:
    """Due at 0 s and started at 9 s; the one before it started at -1 s and ended at 8 s, and it was queued at 8.5 s."""
    before = execution(
        execution_id=UUID(int=1),
        due_at=after(-1000),
        started_at=after(-1000),
        finished_at=after(8000),
        trigger="manual",
    )
    late = execution(execution_id=UUID(int=2), queued_at=after(8500), started_at=after(9000))
    assert start_delays([late, before], {late.job_id: limits}) == [delay_ms]


def test_a_wait_for_a_limit_that_others_hold_is_not_counted() -> None:
    late = execution(started_at=after(9000))
    assert start_delays([late], {late.job_id: OwnLimits(concurrency=True)}) == []


@pytest.mark.parametrize("path", ["/", "/jobs?prefix=a%26b&cursor=x.y-z_1", "/executions/01a1e10d-84d0?place=1.2"])
def test_own_paths_are_kept(path: str) -> None:
    assert local_path(path) == path


@example("//a")
@example("/\\a")
@given(st.text(st.sampled_from("/\\:.@?#<>\"' \t\nahtps%é")))
def test_other_places_are_not(text: str) -> None:
    kept = local_path(text, "")
    assert kept == "" or (kept[0] == "/" and kept[1:2] not in ("/", "\\") and not set(kept) & set("<>\"' \t\n\\"))


def test_a_schedule_as_it_was_written() -> None:
    nightly = ScheduleSpec(cron="0 2 * * *", timezone="Europe/Berlin")
    assert raw_schedule(None) == ""
    assert raw_schedule(nightly) == "0 2 * * * Europe/Berlin"
    assert raw_schedule([nightly, ScheduleSpec(every="5s")]) == "0 2 * * * Europe/Berlin | every 5s"


def test_times_of_a_text_are_shown_in_a_zone() -> None:
    text = "<b> 2026-11-15 23:30 to 2026-11-16 01:00:30 UTC, 2026-11-15 10:00 and 2026-02-30 10:00 UTC"
    shown = Page(str(zoned(text, NOW, "Europe/Berlin"))).text
    assert " ".join(shown.split()) == (
        "<b> 16 Nov 00:30:00 to 16 Nov 02:00:30, 2026-11-15 10:00 and 2026-02-30 10:00 UTC"
    )


def test_a_browser_is_named_by_its_signs() -> None:
    apple = "AppleWebKit/537.36 (KHTML, like Gecko)"
    assert browser_name(f"Mozilla/5.0 (X11; Linux x86_64) {apple} Chrome/156.0 Safari/537.36") == "Chrome on Linux"
    windows = f"Mozilla/5.0 (Windows NT 10.0; Win64; x64) {apple} Chrome/156.0 Safari/537.36 Edg/156.0"
    assert browser_name(windows) == "Edge on Windows"
    mac = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15) AppleWebKit/605.1.15 Version/18.0 Safari/605.1.15"
    assert browser_name(mac) == "Safari on macOS"
    phone = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 FxiOS/130 Safari/605.1.15"
    assert browser_name(phone) == "Firefox on iOS"
    assert browser_name("curl/8.5.0") == "curl/8.5.0" and browser_name("") == "unknown"


def test_a_job_that_fails_and_is_late_needs_a_person_once() -> None:
    def alert(rule: str, key: str) -> wire.Alert:
        return wire.Alert(
            alert_id=UUID(int=9), rule=rule, key=key, severity="warning", state="firing", value=1, threshold=1,
            summary="", since_at=NOW, fired_at=NOW, told_at=None, resolved_at=None,
        )  # fmt: skip

    failing = FailingJob(UUID(int=1), "both", UUID(int=2), "exit code 1", 3, NOW, NOW)
    both = LateJob(UUID(int=1), "both", None, NOW, "it has not succeeded", "missed")
    late = LateJob(UUID(int=3), "late", None, NOW, "it has not succeeded", "missed")
    stuck = LateJob(UUID(int=4), "stuck", UUID(int=5), NOW, "no worker", "no_worker", "gpu")
    found = Attention(
        failing=[failing],
        late=[both, late, stuck],
        unserved=[UnservedQueue("gpu", NOW)],
        alerts=[alert("finish_by_missed", "both"), alert("max_gap_missed", "other"), alert("queue_growing", "both")],
    )
    assert [job.job for job in found.late_alone] == ["late"] and found.late_job(UUID(int=1)) is both
    assert [(a.rule, a.key) for a in found.other_alerts] == [("max_gap_missed", "other"), ("queue_growing", "both")]
    assert [a.rule for a in found.deadline_alerts("both")] == ["finish_by_missed"]
    assert found.count == 1 + 1 + 1 + 2
