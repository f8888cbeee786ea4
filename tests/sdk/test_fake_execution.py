"""Functions that use the context, tested without a server; and log records that name the execution."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from datetime import UTC, datetime

import pytest

import mainspring as ms
from tests.worker.app import jobs as app

pytestmark = pytest.mark.anyio


@ms.job
def import_rows_from(rows: int = 10) -> int:
    context = ms.context()
    first = context.last_checkpoint or 0
    for row in ms.track(range(first, rows)):
        context.checkpoint(row + 1)
    context.artifact("report/rows.csv", context.input("in.csv").read_text())
    return rows - first


def test_a_function_with_a_context_runs_in_a_unit_test() -> None:
    with pytest.raises(ms.NotExecuting, match=r"with ms\.fake_execution\(\):"):
        import_rows_from()
    with ms.fake_execution(job="import", attempt=2, checkpoint=4, inputs={"in.csv": "1,2"}) as execution:
        assert import_rows_from(10) == 6
        assert execution.artifacts == {"report/rows.csv": b"1,2"}
    assert (execution.checkpoint, execution.progress[-1][:2]) == (10, (6, 6))
    with pytest.raises(ms.NotExecuting):
        ms.context()


def test_the_context_has_what_the_test_says() -> None:
    at = datetime(2026, 11, 15, 1, tzinfo=UTC)
    with ms.fake_execution(job="j", execution_id="e", attempt=3, fire_at=at):
        found = ms.context()
        assert (found.job, found.execution_id, found.attempt, found.fire_at) == ("j", "e", 3, at)
        assert app.report(at.date())["attempt"] == 3
        with pytest.raises(ValueError, match="the limit is 64,000"):
            found.checkpoint("x" * 64_000)
        with pytest.raises(FileNotFoundError):
            found.input("nothing.csv")
    with ms.fake_execution(fire_at=datetime(2026, 1, 1)):  # noqa: DTZ001
        assert ms.context().fire_at.tzinfo is not None


def test_a_missing_marker_table_says_what_creates_it() -> None:
    connection = sqlite3.connect(":memory:")
    with ms.fake_execution() as execution:
        with pytest.raises(RuntimeError, match=r"ms\.create_marker_table\(connection\)"), ms.transaction(connection):
            raise AssertionError("not reached")
        ms.create_marker_table(connection)
        with (
            pytest.raises(TypeError, match="the result of the transaction is not JSON"),
            ms.transaction(connection) as tx,
        ):
            tx.result = object()
        with ms.transaction(connection) as tx:
            tx.result = 1
    assert execution.committed
    with (
        pytest.raises(TypeError, match=r"ms\.transaction takes a connection of a driver"),
        ms.transaction("postgresql://"),
    ):
        raise AssertionError("not reached")
    connection.close()


class Keeping(logging.Handler):
    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__()
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(record)


async def test_log_records_name_their_execution() -> None:
    records: list[logging.LogRecord] = []
    handler = Keeping(records)
    handler.addFilter(ms.LogFilter())
    log = logging.getLogger("test_logs")
    log.addHandler(handler)

    async def one(job: str) -> None:
        with ms.fake_execution(job=job, attempt=2):
            await asyncio.sleep(0)
            log.warning("in a coroutine")
            await asyncio.to_thread(log.warning, "in a thread")
            assert ms.add_log_fields(None, "info", {"event": "x", "job": "own"})["job"] == "own"

    try:
        log.warning("outside")
        await asyncio.gather(one("a"), one("b"))
    finally:
        log.removeHandler(handler)
    fields = [(getattr(r, "job", None), getattr(r, "attempt", None), r.getMessage()) for r in records]
    assert fields[0] == ("-", "-", "outside")
    assert sorted(fields[1:]) == [
        ("a", 2, "in a coroutine"), ("a", 2, "in a thread"), ("b", 2, "in a coroutine"), ("b", 2, "in a thread"),
    ]  # fmt: skip
    assert ms.log_fields() == {}
