from __future__ import annotations

import msgspec
import pytest

from mainspring import wire
from tests.support.invoke import Invoke
from tests.support.scripted_server import Scripted


def test_explain_says_it_in_words_with_the_next_fires(server: Scripted, invoke: Invoke) -> None:
    result = invoke("cron", "explain", "30 2 * * *", "--tz", "Europe/Berlin")
    words, *nexts = result.stdout.splitlines()
    assert words == "at 02:30 every day (Europe/Berlin)"
    assert len(nexts) == 3
    for line in nexts:
        assert " 02:30:00 CE" in line
        assert line.endswith("UTC")
    assert "does not exist in Europe/Berlin" in result.stderr
    assert server.asked == []


def test_next_gives_the_fires_after_an_instant(invoke: Invoke) -> None:
    words = ["cron", "next", "0 9 * * 1", "--tz", "Asia/Tokyo", "--after", "2026-11-15T12:00Z", "-n", "2"]
    assert invoke(*words).stdout.splitlines() == [
        "2026-11-16 09:00:00 JST  2026-11-16 00:00:00 UTC",
        "2026-11-23 09:00:00 JST  2026-11-23 00:00:00 UTC",
    ]


def test_json_gives_utc_instants_in_the_form_of_the_api(invoke: Invoke) -> None:
    text = invoke("cron", "next", "TZ=Asia/Tokyo 0 9 * * *", "--after", "2026-11-15", "--n", "2", "-o", "json").stdout
    assert '"2026-11-16T00:00:00Z"' in text
    found = msgspec.json.decode(text, type=wire.Fires)
    assert found.timezone == "Asia/Tokyo"
    assert len(found.fires) == 2


@pytest.mark.parametrize(
    ("expression", "says"),
    [("0 25 * * *", "0-23"), ("0 0 31 2 *", "31 February never comes"), ("often", "field")],
)
def test_what_can_not_work_is_refused_with_a_hint(invoke: Invoke, expression: str, says: str) -> None:
    result = invoke("cron", "next", expression)
    assert (result.exit_code, result.stdout) == (6, "")
    assert says in result.stderr


def test_an_unknown_zone_gets_a_suggestion(invoke: Invoke) -> None:
    result = invoke("cron", "explain", "@daily", "--tz", "Europe/Berln")
    assert result.exit_code == 6
    assert "Europe/Berlin" in result.stderr


def test_an_interval_may_be_written_as_a_macro(invoke: Invoke) -> None:
    assert invoke("cron", "explain", "@every 10m").stdout.startswith("every 10 minutes\n")


def test_six_fields_have_seconds_first(invoke: Invoke) -> None:
    words = ["cron", "next", "15,45 30 9 L * *", "--after", "2026-11-15", "-n", "2"]
    assert invoke(*words).stdout.splitlines() == ["2026-11-30 09:30:15 UTC", "2026-11-30 09:30:45 UTC"]


def test_a_recurrence_rule_is_read_where_an_expression_is(invoke: Invoke) -> None:
    words = ["cron", "next", "FREQ=MONTHLY;BYDAY=1MO", "--dtstart", "2026-01-01T09:00", "--tz", "Europe/Berlin"]
    result = invoke(*words, "--after", "2026-11-15", "-n", "2")
    assert result.stdout.splitlines() == [
        "2026-12-07 09:00:00 CET  2026-12-07 08:00:00 UTC",
        "2027-01-04 09:00:00 CET  2027-01-04 08:00:00 UTC",
    ]
    explained = invoke("cron", "explain", "RRULE:FREQ=WEEKLY;BYDAY=FR", "--dtstart", "2026-01-02T17:30")
    assert explained.stdout.startswith("every week on Friday at 17:30\n")
    refused = invoke("cron", "explain", "FREQ=WEEKLY;BYDAY=1FR")
    assert refused.exit_code == 6
    assert "FREQ=MONTHLY" in refused.stderr


def test_between_lists_what_is_in_the_range_and_counts_the_rest(invoke: Invoke) -> None:
    words = ["cron", "between", "0 */6 * * *", "--after", "2026-11-15", "--until", "2026-11-15T18:00Z"]
    result = invoke(*words)
    assert [line[11:16] for line in result.stdout.splitlines()] == ["06:00", "12:00", "18:00"]
    assert "3 fires" in result.stderr
    year = ["cron", "between", "*/5 * * * *", "--after", "2027-01-01", "--until", "2028-01-01", "-n", "1"]
    assert "1 of 105,120 fires" in invoke(*year).stderr
    found = msgspec.json.decode(invoke(*words, "-o", "json").stdout, type=wire.Fires)
    assert len(found.fires) == 3


def test_between_needs_a_range(invoke: Invoke) -> None:
    result = invoke("cron", "between", "@daily", "--after", "2026-11-15", "--until", "2026-11-14")
    assert result.exit_code == 2
    assert "is not after" in result.stderr


def test_h_is_shown_for_a_job(invoke: Invoke) -> None:
    one, other = (invoke("cron", "explain", "H H * * *", "--job", name).stdout for name in ("report", "import"))
    assert one.startswith("at ") and one != other
    refused = invoke("cron", "explain", "H H * * *")
    assert refused.exit_code == 6
    assert "H needs a job name" in refused.stderr
