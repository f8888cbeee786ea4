"""Fires that are due together are published together."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from tests.support.scheduling import add, copies, scheduler_on, step
from tests.support.settling import SettlingBench
from tests.support.statements import listen

pytestmark = pytest.mark.anyio


@pytest.mark.requirement(30)
@pytest.mark.parametrize("jobs", [1, 1000])
async def test_a_thousand_fires_are_a_few_statements(
    fresh: Database, virtual: VirtualClock, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    """Lock, decide and insert, move the watermark, in one or two transactions; a benchmark measures what they cost."""
    await add(fresh, "minutely", overlap="allow")
    await copies(fresh, jobs - 1)
    scheduler = await scheduler_on(fresh)
    asked = Counter[str]()

    def note(record: Any) -> None:
        asked[record.query.split("\n")[0]] += 1

    listen(fresh, "hot", note, monkeypatch)
    await virtual.advance(seconds=60)
    await step(scheduler)
    assert await SettlingBench(fresh).live() == {"queued": jobs}
    ours = Counter({query: n for query, n in asked.items() if query.startswith(("--", "BEGIN", "COMMIT"))})
    assert 1 <= ours["BEGIN;"] <= 2, ours
    assert len(ours) <= 7 and max(ours.values()) <= ours["BEGIN;"], ours
