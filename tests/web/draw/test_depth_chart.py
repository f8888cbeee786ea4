from __future__ import annotations

from datetime import UTC, datetime

from mainspring.views.queue_history import QueueHistory
from mainspring.web.draw.depth_chart import depth_charts

START = datetime(2026, 11, 18, 6, tzinfo=UTC)


def test_a_chart_is_a_step_line_with_gaps_where_nothing_was_sampled() -> None:
    (chart,) = depth_charts(QueueHistory(START, 60, {"short": [0, 10, 10, None, 5, 0]}))
    assert chart.path == "M0 60V60H60V2H180V60ZM240 60V31H300V60H360V60Z"
    assert (chart.peak, chart.peak_at.minute, chart.last) == (10, 1, 0)


def test_the_largest_value_that_is_known_last_may_be_missing() -> None:
    (chart,) = depth_charts(QueueHistory(START, 60, {"long": [3, None]}))
    assert (chart.path, chart.last) == ("M0 60V2H180V60Z", None)
