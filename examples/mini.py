"""The idea of Mainspring in one file: a time wheel, exactly-once firing, claims, retries and dead letters.

Nothing is distributed here, and SQLite stands in for PostgreSQL. Time is a number of seconds that the caller passes.
The real parts are in scheduler/wheel.py, scheduler/tick.py, dispatch/claim.py, worker/attempt.py and results/settle.py.

    python examples/mini.py
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator

SCHEMA = """
CREATE TABLE jobs (name TEXT PRIMARY KEY, every INT, retries INT);
CREATE TABLE executions (
    id TEXT PRIMARY KEY,             -- computed from job and instant: the same fire is the same row
    job TEXT, fire_at INT, due_at INT,
    state TEXT DEFAULT 'queued',     -- queued -> running -> succeeded | waiting | failed
    attempt INT DEFAULT 0, worker TEXT
);
CREATE TABLE dead_letters (id TEXT PRIMARY KEY, error TEXT);
CREATE TABLE shard (watermark INT);  -- every fire up to this instant has been decided
INSERT INTO shard VALUES (0);
"""
BASE_S = 4  # delay before the first retry; it doubles with each further one


class Wheel:
    """Entries in 60 slots by their second: adding one and advancing by a second are O(1)."""

    def __init__(self) -> None:
        self.slots: list[list[tuple[int, str, int]]] = [[] for _ in range(60)]

    def add(self, at: int, job: str, every: int) -> None:
        self.slots[at % 60].append((at, job, every))

    def advance(self, after: int, until: int) -> Iterator[tuple[int, str]]:
        """The instants in (after, until], in order. An entry moves to its next instant."""
        for second in range(after + 1, until + 1):
            slot, self.slots[second % 60] = self.slots[second % 60], []
            for at, job, every in slot:
                if at > second:  # a later round of the wheel
                    self.add(at, job, every)
                else:
                    yield second, job
                    self.add(second + every, job, every)


def load(db: sqlite3.Connection) -> Wheel:
    """Build the wheel from the database: each job's first instant after the watermark."""
    wheel = Wheel()
    (watermark,) = db.execute("SELECT watermark FROM shard").fetchone()
    for job, every in db.execute("SELECT name, every FROM jobs"):
        wheel.add(watermark - watermark % every + every, job, every)
    return wheel


def execution_id(job: str, fire_at: int) -> str:
    """Ordered by time, and the same for the same fire wherever it is computed."""
    return f"{fire_at:08x}-{hashlib.sha256(f'{job}:{fire_at}'.encode()).hexdigest()[:8]}"


def fire(db: sqlite3.Connection, wheel: Wheel, now: int) -> None:
    """Decide every instant in (watermark, now], in one transaction. If it fails, load the wheel again."""
    with db:
        (watermark,) = db.execute("SELECT watermark FROM shard").fetchone()
        for at, job in wheel.advance(watermark, now):
            row = (execution_id(job, at), job, at, at)
            db.execute("INSERT OR IGNORE INTO executions (id, job, fire_at, due_at) VALUES (?, ?, ?, ?)", row)
        db.execute("UPDATE shard SET watermark = max(watermark, ?)", (now,))


def claim(db: sqlite3.Connection, worker: str, now: int) -> tuple[str, str, int] | None:
    """Take the oldest due execution for a worker. One statement, so two workers never get the same one."""
    with db:
        return db.execute(
            """UPDATE executions SET state = 'running', attempt = attempt + 1, worker = ?
               WHERE id = (SELECT id FROM executions WHERE state IN ('queued', 'waiting') AND due_at <= ?
                           ORDER BY due_at, id LIMIT 1)
               RETURNING id, job, attempt""",
            (worker, now),
        ).fetchone()


def settle(db: sqlite3.Connection, id: str, worker: str, attempt: int, error: str | None, now: int) -> bool:
    """Record how an attempt ended, and what follows. False: the result is stale and changes nothing."""
    with db:
        held = db.execute(
            """SELECT retries FROM executions JOIN jobs ON job = name
               WHERE id = ? AND worker = ? AND attempt = ? AND state = 'running'""",
            (id, worker, attempt),
        ).fetchone()
        if held is None:
            return False
        if error is None:
            db.execute("UPDATE executions SET state = 'succeeded' WHERE id = ?", (id,))
        elif attempt <= held[0]:
            due_at = now + BASE_S * 2 ** (attempt - 1)
            db.execute("UPDATE executions SET state = 'waiting', due_at = ? WHERE id = ?", (due_at, id))
        else:
            db.execute("UPDATE executions SET state = 'failed' WHERE id = ?", (id,))
            db.execute("INSERT INTO dead_letters VALUES (?, ?)", (id, error))
        return True


def rescue(db: sqlite3.Connection, worker: str) -> None:
    """Return what a lost worker was running. Its late results no longer match an attempt."""
    with db:
        db.execute("UPDATE executions SET state = 'queued' WHERE state = 'running' AND worker = ?", (worker,))


def work(db: sqlite3.Connection, worker: str, tasks: dict[str, Callable[[int], None]], now: int) -> None:
    """Execute everything that is due."""
    while (claimed := claim(db, worker, now)) is not None:
        id, job, attempt = claimed
        error = None
        try:
            tasks[job](attempt)
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        settle(db, id, worker, attempt, error, now)


def fail_before(successful: int) -> Callable[[int], None]:
    def task(attempt: int) -> None:
        if attempt < successful:
            raise ConnectionError("no route to host")

    return task


def main() -> None:
    db = sqlite3.connect(":memory:")
    db.executescript(SCHEMA)
    db.executemany("INSERT INTO jobs VALUES (?, ?, ?)", [("report", 10, 3), ("flaky", 30, 3), ("broken", 60, 1)])
    tasks = {"report": fail_before(0), "flaky": fail_before(3), "broken": fail_before(99)}
    wheel = load(db)
    for now in range(1, 91):
        fire(db, wheel, now)
        work(db, "worker-1", tasks, now)
    for row in db.execute("SELECT job, count(*), state, max(attempt) FROM executions GROUP BY job, state"):
        print(f"{row[0]}: {row[1]} {row[2]}, at most {row[3]} attempts")
    for id, error in db.execute("SELECT id, error FROM dead_letters"):
        print(f"dead letter {id}: {error}")


if __name__ == "__main__":
    main()
