"""Cost of the schedule engine, compared with two other libraries: next fire, parsing, counting the fires of a year.

All run in one process, in turns, so that a busy machine slows everything alike; the median of many rounds counts.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from statistics import median
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim
from harness import publish

from mainspring.domain.schedule import cron
from mainspring.domain.schedule.cron import parse_cron
from mainspring.domain.schedule.cron_terms import read_field
from mainspring.domain.schedule.schedule import Schedule, ScheduleSpec, compile_key, resolve

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "15"))
STEPS = int(os.environ.get("BENCH_STEPS", "2000"))
COMMON = ["* * * * *", "*/5 * * * *", "0 * * * *", "0 2 * * *", "30 9 * * MON-FRI", "15,45 8-18 * * *", "0 0 1 * *"]
SPECIAL = ["*/10 * * * * *", "0 9 * * MON#1", "0 0 L * *", "0 6 15W * *", "0 0 29 2 *"]
ZONE = "Europe/Berlin"
START = datetime(2027, 1, 1, tzinfo=UTC)
START_MS = round(START.timestamp() * 1000)
YEAR_MS = 365 * 86_400_000


def schedule(expression: str) -> Schedule:
    key = resolve(ScheduleSpec(cron=expression, timezone=ZONE), now_ms=START_MS).key
    assert key is not None
    return compile_key(key)


def micros(action: Callable[[], object], times: int) -> float:
    started = time.perf_counter()
    for _ in range(times):
        action()
    return (time.perf_counter() - started) / times * 1e6


def walker(found: Schedule) -> Callable[[], object]:
    """Step from fire to fire, as the scheduler does."""
    at = START_MS

    def step() -> None:
        nonlocal at
        following = found.next_after(at)
        at = START_MS if following is None or following > START_MS + 30 * YEAR_MS else following

    return step


def walk_cronsim(expression: str) -> Callable[[], object]:
    return CronSim(expression, START.astimezone(ZoneInfo(ZONE))).__next__


def walk_croniter(expression: str) -> Callable[[], object]:
    return croniter(expression, START.astimezone(ZoneInfo(ZONE))).get_next


def never_read(number: int) -> list[str]:
    """Parse typical expressions, each of them new to the cache."""
    rng = random.Random(7)
    found: set[str] = set()
    while len(found) < number:
        minute = rng.choice(
            [str(rng.randint(0, 59)), f"*/{rng.randint(2, 30)}", f"{rng.randint(0, 29)},{rng.randint(30, 59)}"]
        )
        hour = rng.choice(["*", str(rng.randint(0, 23)), f"{rng.randint(0, 11)}-{rng.randint(12, 23)}"])
        dates = rng.choice(
            ["* * *", "* * *", f"{rng.randint(1, 31)} * *", f"* * {rng.choice(['MON-FRI', 'SAT,SUN', '1'])}"]
        )
        found.add(f"{minute} {hour} {dates}")
    return sorted(found)


def measure_next(expressions: list[str], walks: dict[str, Callable[[str], Callable[[], object]]]) -> dict[str, float]:
    """Return the median microseconds per step over all expressions and rounds, by library."""
    steps = {name: [walk(expression) for expression in expressions] for name, walk in walks.items()}
    found: dict[str, list[float]] = {name: [] for name in walks}
    for _ in range(ROUNDS):
        for name, walkers in steps.items():
            times = STEPS if name == "mainspring" else STEPS // 20
            found[name] += [micros(step, times) for step in walkers]
    return {name: median(values) for name, values in found.items()}


def forget() -> None:
    """Clear every cache of parsed expressions."""
    for kept in (cron._read_times, cron._read_dates, read_field):
        kept.cache_clear()


def read_afresh(text: str) -> float:
    forget()
    return micros(lambda: parse_cron(text), 1)


def measure_parse() -> dict[str, float]:
    texts = never_read(2000)
    readers: dict[str, Callable[[str], object]] = {
        "mainspring": parse_cron,
        "cronsim": lambda text: CronSim(text, START),
        "croniter": lambda text: croniter(text, START),
    }
    found: dict[str, list[float]] = {name: [] for name in readers}
    for _ in range(max(3, ROUNDS // 3)):
        forget()
        for name, read in readers.items():
            for text in texts:
                started = time.perf_counter()
                read(text)
                found[name].append((time.perf_counter() - started) * 1e6)
    found["afresh"] = [read_afresh(text) for text in texts]
    return {name: median(values) for name, values in found.items()}


def main() -> None:
    common = measure_next(
        COMMON,
        {"mainspring": lambda text: walker(schedule(text)), "cronsim": walk_cronsim, "croniter": walk_croniter},
    )
    special = measure_next(SPECIAL, {"mainspring": lambda text: walker(schedule(text))})
    parse = measure_parse()
    five_minutes = schedule("*/5 * * * *")
    year = five_minutes.count_between(START_MS, START_MS + YEAR_MS)
    assert year == len(five_minutes.between(START_MS, START_MS + YEAR_MS, 1_000_000)) == 105_120
    counting = median(
        micros(lambda: five_minutes.count_between(START_MS, START_MS + YEAR_MS), 100) for _ in range(ROUNDS)
    )
    publish(
        "cron",
        [
            f"- {len(COMMON)} common expressions in {ZONE}, medians of {ROUNDS} rounds",
            "",
            "| µs | mainspring | cronsim | croniter | goal |",
            "|---|---|---|---|---|",
            f"| next fire, once parsed | {common['mainspring']:.2f} | {common['cronsim']:.1f}"
            f" | {common['croniter']:.1f} | 3 |",
            f"| next fire, seconds and days by rule | {special['mainspring']:.2f} | | | |",
            f"| reading an expression not seen before | {parse['mainspring']:.1f} | {parse['cronsim']:.1f}"
            f" | {parse['croniter']:.1f} | 25 |",
            f"| the same with nothing kept from others | {parse['afresh']:.1f} | | | |",
            f"| counting a year of `*/5 * * * *` ({year:,} fires) | {counting:.1f} | | | 1,000 |",
        ],
        {
            "next_us": round(common["mainspring"], 2),
            "special_next_us": round(special["mainspring"], 2),
            "parse_us": round(parse["mainspring"], 2),
            "parse_afresh_us": round(parse["afresh"], 2),
            "cronsim_next_us": round(common["cronsim"], 2),
            "croniter_next_us": round(common["croniter"], 2),
            "cronsim_parse_us": round(parse["cronsim"], 2),
            "croniter_parse_us": round(parse["croniter"], 2),
            "count_year_us": round(counting, 1),
        },
    )


if __name__ == "__main__":
    main()
