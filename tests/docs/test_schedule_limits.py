"""The limits of schedules in the reference are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainspring.domain.schedule import blackouts, budget, limits

PAGE = (Path(__file__).parents[2] / "docs/reference/limits.md").read_text()


@pytest.mark.parametrize(
    "row",
    [
        f"| schedules in a list | {limits.MAX_MEMBERS} |",
        f"| `cron` | {limits.MAX_TEXT['cron']:,} characters |",
        f"| `rrule` | {limits.MAX_TEXT['rrule']:,} characters |",
        f"`dtstart`, `start_at`, `end_at` | {limits.MAX_TEXT['at']} characters each |",
        f"| `exdates` | {limits.MAX_EXDATES} |",
        f"| `exclude` | {limits.MAX_EXCLUDE}, each of {limits.MAX_TEXT['cron']:,} characters |",
        f"of all schedules in a list | {limits.MAX_TOGETHER:,} |",
        f"in canonical form | {limits.MAX_KEY:,} characters |",
        f"each of {limits.MAX_CALENDAR_RULE} characters |",
        f"| blackouts of a tenant that have not ended | {blackouts.MAX_BLACKOUTS} |",
        f"| `max_fires` | {limits.MAX_FIRES:,} |",
        f"when a schedule is saved | {budget.SAVE_STEPS:,} |",
        f"lists of fires | {budget.REQUEST_STEPS:,} |",
        f"one search while firing | {budget.FIRE_STEPS:,} |",
        f"outside the event loop | {budget.BATCH_STEPS:,} |",
    ],
)
def test_the_reference_has_this_limit(row: str) -> None:
    assert row in PAGE
