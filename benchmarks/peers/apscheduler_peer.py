"""APScheduler 3: N date jobs due at one instant, in memory or on PostgreSQL; the default pool of 10 threads.

`apscheduler_peer.py herd N memory|postgresql` prints how long after the instant the last function began;
`apscheduler_peer.py memory N memory` how many megabytes N interval jobs add to the process.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from verbs import DSN

SAMPLE = 100  # jobs created to learn how long creating one takes
begun: list[float] = []
over = threading.Event()


def note(all_of_them: int) -> None:
    begun.append(time.time())
    if len(begun) == all_of_them:
        over.set()


def herd(count: int, store: str) -> None:
    where = MemoryJobStore() if store == "memory" else SQLAlchemyJobStore(url=DSN)
    scheduler = BackgroundScheduler(
        jobstores={"default": where}, timezone=UTC, job_defaults={"misfire_grace_time": None}
    )
    scheduler.start(paused=True)
    created = time.monotonic()
    for _ in range(SAMPLE):
        scheduler.add_job("apscheduler_peer:note", "date", args=[count], run_date=datetime(2100, 1, 1, tzinfo=UTC))
    due = time.time() + 5 + 2 * (time.monotonic() - created) / SAMPLE * count
    when = datetime.fromtimestamp(due, UTC)
    for _ in range(count):
        scheduler.add_job("apscheduler_peer:note", "date", args=[count], run_date=when)
    if time.time() > due:
        raise TimeoutError("creating the jobs took too long")
    scheduler.resume()
    if not over.wait(300):
        raise TimeoutError(f"{len(begun)} of {count} functions began")
    scheduler.shutdown()
    print(json.dumps({"last_s": max(begun) - due}), flush=True)


def memory(count: int, store: str) -> None:
    scheduler = BackgroundScheduler(timezone=UTC)
    scheduler.start(paused=True)
    gc.collect()
    before = resident_mb()
    for number in range(count):
        scheduler.add_job("apscheduler_peer:note", "interval", seconds=3600 + number, args=[count])
    gc.collect()
    print(json.dumps({"mb": resident_mb() - before}), flush=True)
    scheduler.shutdown(wait=False)


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    import apscheduler_peer  # the name by which the scheduler finds the function

    {"herd": apscheduler_peer.herd, "memory": apscheduler_peer.memory}[sys.argv[1]](int(sys.argv[2]), sys.argv[3])
