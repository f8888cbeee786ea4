"""Misfire and overlap policies with the outcomes they must have."""

from __future__ import annotations

LONG = 1_000_000.0

OVERLAPS = ("skip", "queue_one", "queue_all", "cancel_running", "allow")

MISFIRES = ("latest", "all", "skip")

LedgerLine = tuple[int, str, str | None]


def skipped(*at: int, why: str = "misfire") -> list[LedgerLine]:
    return [(n, "skipped", why) for n in at]


# Instants 60, 120 and 180 came due while nobody decided; at 200 a scheduler starts. Nothing has run since.
DOWN: dict[tuple[str, str], list[LedgerLine]] = {
    **{("skip", overlap): skipped(60, 120, 180) for overlap in OVERLAPS},
    **{("latest", overlap): [*skipped(60, 120), (180, "queued", None)] for overlap in OVERLAPS},
    ("all", "skip"): [(60, "queued", None), *skipped(120, 180, why="overlap")],
    ("all", "queue_one"): [(60, "queued", None), *skipped(120, 180, why="overlap")],
    ("all", "queue_all"): [(60, "queued", None), (120, "blocked", None), (180, "blocked", None)],
    ("all", "cancel_running"): [(60, "cancelled", "overlap"), (120, "cancelled", "overlap"), (180, "queued", None)],
    ("all", "allow"): [(60, "queued", None), (120, "queued", None), (180, "queued", None)],
}
