from __future__ import annotations

import msgspec
import pytest

from mainspring import wire
from tests.cli.conftest import Invoke
from tests.client.scripted import Scripted


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
