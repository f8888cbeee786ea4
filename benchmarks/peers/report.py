"""Medians over the rounds, their ratios and goals, as a table and as one line of JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from harness import publish
from peers.catalog import APSCHEDULER, MAINSPRING, PEERS, REDIS, TEMPORAL
from peers.install import pinned, redis_version

US = "mainspring"


@dataclass(frozen=True)
class Counts:
    """How much of what was measured."""

    rounds: int
    latency: int
    rate: int
    singles: int
    in_flight: int
    bulk: int
    batch: int
    drain: int
    queued: int
    herds: tuple[int, ...]
    memory: int
    flows: dict[str, int]


@dataclass
class Samples:
    """The figures of every round by row and system, and the noise of the machine just before each."""

    found: dict[tuple[str, str], list[dict[str, float]]] = field(default_factory=dict)
    noise: dict[tuple[str, str], list[tuple[float, float, float]]] = field(default_factory=dict)
    reasons: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, row: str, name: str, figures: dict[str, float]) -> None:
        if figures:
            self.found.setdefault((row, name), []).append(figures)

    def add_noise(self, row: str, name: str, figures: tuple[float, float, float]) -> None:
        self.noise.setdefault((row, name), []).append(figures)

    def fail(self, row: str, name: str, reason: str) -> None:
        self.reasons[row, name] = " ".join(reason.replace("|", "/").split())[:200]

    def failed(self, row: str, name: str) -> str:
        return self.reasons.get((row, name), "")

    def never_worked(self, row: str, name: str) -> bool:
        return (row, name) in self.reasons and (row, name) not in self.found

    def names(self, row: str) -> list[str]:
        """Return the systems of a row, Mainspring first."""
        known = dict.fromkeys(name for known_row, name in [*self.found, *self.reasons] if known_row == row)
        return sorted(known, key=lambda name: name != US)

    def all_of(self, row: str, name: str, metric: str) -> list[float]:
        return [figures[metric] for figures in self.found.get((row, name), []) if metric in figures]

    def value(self, row: str, name: str, metric: str) -> float | None:
        """Return the median over the rounds."""
        found = self.all_of(row, name, metric)
        return median(found) if found else None

    def ratio(self, row: str, other: str, metric: str, *, of: str = "") -> float | None:
        """Return Mainspring's figure as a multiple of another system's: the median over rounds of the same number."""
        ours, theirs = self.all_of(row, US, metric), self.all_of(of or row, other, metric)
        if not ours or not theirs:
            return None
        if len(ours) == len(theirs):
            return median(a / b for a, b in zip(ours, theirs, strict=True))
        return median(ours) / median(theirs)

    def machine(self, row: str, name: str) -> str:
        found = self.noise.get((row, name))
        if not found:
            return ""
        p50, p99, loop = (median(column) for column in zip(*found, strict=True))
        return f"{p50:.2f} / {p99:.2f}, {loop:.1f}"


def title(name: str) -> str:
    if name in PEERS:
        return PEERS[name].title
    return {US: "**Mainspring**"}.get(
        name, name.replace("apscheduler", "APScheduler").replace("postgresql", "PostgreSQL")
    )


@dataclass
class Table:
    """The lines of the table."""

    samples: Samples
    lines: list[str] = field(default_factory=list)

    def row(
        self,
        row: str,
        what: str,
        shown: Callable[[str], str | None],
        goal: str = "",
        metrics: tuple[str, ...] = (),
    ) -> None:
        """Add a line for each system of the row; Mainspring's has the goal, and those of the peers its ratio."""
        for name in self.samples.names(row):
            text = shown(name)
            reason = self.samples.failed(row, name)
            if text is None and not reason:
                continue
            if text is None:
                text = f"not measured: {reason}"
            elif reason:
                text += f"; failed in a round: {reason}"
            beside = goal if name == US else self._times(row, name, metrics)
            self.lines.append(f"| {what} | {title(name)} | {text} | {beside} | {self.samples.machine(row, name)} |")

    def _times(self, row: str, name: str, metrics: tuple[str, ...]) -> str:
        found = [self.samples.ratio(row, name, metric) for metric in metrics]
        shown = " / ".join(f"{ratio:.2f}" for ratio in found if ratio is not None)
        return f"Mainspring: {shown} of it" if shown else ""


def against(samples: Samples, row: str, other: str, metric: str, goal: str, *, of: str = "") -> str:
    ratio = samples.ratio(row, other, metric, of=of)
    return f"{ratio:.2f} of {title(other)}'s ({goal})" if ratio is not None else f"of {title(other)}'s: {goal}"


def per_second(samples: Samples, row: str, metric: str = "per_s") -> Callable[[str], str | None]:
    def shown(name: str) -> str | None:
        value = samples.value(row, name, metric)
        if value is None:
            return None
        rounds = ", ".join(f"{each:,.0f}" for each in samples.all_of(row, name, metric))
        return f"{value:,.0f} (of {rounds})"

    return shown


def pair(samples: Samples, row: str, low: str = "p50", high: str = "p99") -> Callable[[str], str | None]:
    def shown(name: str) -> str | None:
        p50, p99 = samples.value(row, name, low), samples.value(row, name, high)
        if p50 is None or p99 is None:
            return None
        rounds = ", ".join(f"{each:.1f}" for each in samples.all_of(row, name, high))
        return f"{p50:.2f} / {p99:.2f} (p99 of {rounds})"

    return shown


def cpu(samples: Samples) -> Callable[[str], str | None]:
    def shown(name: str) -> str | None:
        total = samples.value("latency", name, "cpu_sum")
        if total is None:
            return None
        first = samples.found["latency", name][0]
        roles = [metric for metric in first if metric.startswith("cpu_") and metric != "cpu_sum"]
        parts = ((role.removeprefix("cpu_"), samples.value("latency", name, role) or 0.0) for role in sorted(roles))
        return f"{total:.2f} = " + " + ".join(f"{role} {ms:.2f}" for role, ms in parts)

    return shown


def table(samples: Samples, n: Counts) -> list[str]:
    made = Table(samples)
    p50 = against(samples, "latency", "pgqueuer", "p50", "at most 1, aim 0.6")
    p99 = against(samples, "latency", "pgqueuer", "p99", "at most 1, aim 0.5")
    submit = f"submit at {n.rate}/s to the function's first line, p50 / p99 ms"
    made.row("latency", submit, pair(samples, "latency"), f"p50 {p50}; p99 {p99}", metrics=("p50", "p99"))
    made.row("latency", f"CPU ms per execution at {n.rate}/s", cpu(samples), "at most 3", metrics=("cpu_sum",))
    singles = f"single submits per second, {n.in_flight} in flight, one client process"
    made.row("submits", singles, per_second(samples, "submits"), "2,000, aim 4,000", metrics=("per_s",))
    for count in (1, 8, 32):
        row, goal = f"endpoint {count}", ("4,000; p99 25" if count == 32 else "")
        made.row(row, f"endpoint, {count} connection(s), per second", per_second(samples, row), goal)
        made.row(row, f"endpoint, {count} connection(s), p50 / p99 ms", pair(samples, row))
    bulk = against(samples, "bulk", "pgqueuer", "per_s", "at least 0.8")
    made.row(
        "bulk",
        f"bulk submits per second, batches of {n.batch:,}",
        per_second(samples, "bulk"),
        bulk,
        metrics=("per_s",),
    )
    drain = "; ".join(
        (
            against(samples, "drain", "pgqueuer", "per_s", "at least 2.5"),
            against(samples, "drain", "graphile", "per_s", "at least 0.8, aim 1.2"),
        )
    )
    functions = against(samples, "functions", "pgqueuer", "per_s", "at least 2", of="drain")
    made.row("drain", "drain of no-ops per second", per_second(samples, "drain"), drain, metrics=("per_s",))
    made.row("functions", "drain of Python functions per second", per_second(samples, "functions"), functions)
    for count in (1, 8):
        what, goal = f"`GET` of a job with {n.queued:,} queued, {count} connection(s)", ("3,000" if count == 8 else "")
        made.row("status", f"{what}, per second", per_second(samples, "status", f"per_s_{count}"), goal)
        p = pair(samples, "status", f"p50_{count}", f"p99_{count}")
        made.row("status", f"{what}, p50 / p99 ms", p, "p99 8" if count == 8 else "")

    for count in n.herds:
        row, goal = f"herd {count}", "0.7" if count == 10_000 else ""
        what = f"{count:,} schedules at one instant, last function began, s"
        made.row(row, what, value_of(samples, row, "last_s"), goal, metrics=("last_s",))
    for row, what in (
        ("chain", "chain of {} functions, s"),
        ("fan", "fan-out to {} functions and one at their end, s"),
    ):
        made.row(row, what.format(n.flows[row]), value_of(samples, row, "s", 3), metrics=("s",))
    made.row("memory", f"memory of {n.memory:,} schedules, MB", value_of(samples, "memory", "mb", 0), metrics=("mb",))
    return made.lines


def value_of(samples: Samples, row: str, metric: str, digits: int = 2) -> Callable[[str], str | None]:
    def shown(name: str) -> str | None:
        value = samples.value(row, name, metric)
        return None if value is None else f"{value:.{digits}f}"

    return shown


def figures(samples: Samples) -> dict[str, Any]:
    def of(row: str, name: str, metric: str, digits: int = 2) -> float | None:
        value = samples.value(row, name, metric)
        return None if value is None else round(value, digits) if digits else round(value)

    found: dict[str, Any] = {
        "submit_to_function_p50_ms": of("latency", US, "p50"),
        "submit_to_function_p99_ms": of("latency", US, "p99"),
        "pgqueuer_p50_ms": of("latency", "pgqueuer", "p50"),
        "pgqueuer_p99_ms": of("latency", "pgqueuer", "p99"),
        "client_submits_per_s": of("submits", US, "per_s", 0),
        "endpoint_submits_per_s": of("endpoint 32", US, "per_s", 0),
        "status_p50_ms": of("status", US, "p50_8"),
        "status_p99_ms": of("status", US, "p99_8"),
        "status_per_s": of("status", US, "per_s_8", 0),
        "cpu_ms_per_execution": of("latency", US, "cpu_sum"),
        "drain_per_s": of("drain", US, "per_s", 0),
        "functions_per_s": of("functions", US, "per_s", 0),
        "bulk_submits_per_s": of("bulk", US, "per_s", 0),
        "endpoint_p99_ms": of("endpoint 32", US, "p99"),
        "herd_last_s": of("herd 10000", US, "last_s"),
        "chain_s": of("chain", US, "s", 3),
        "fan_s": of("fan", US, "s", 3),
        "memory_mb": of("memory", US, "mb"),
    }
    for (row, name), reason in samples.reasons.items():
        found.setdefault("not_measured", {})[f"{row} {name}"] = reason
    for row, name in samples.found:
        if name != US:
            metrics = [
                metric for metric in samples.found[row, name][0] if not metric.startswith("cpu_") or metric == "cpu_sum"
            ]
            found.setdefault("peers", {})[f"{row} {name}"] = {metric: of(row, name, metric) for metric in metrics}
    return found


def publish_all(
    samples: Samples, n: Counts, names: list[str], *, postgresql: str, generator: str, written: bool
) -> None:
    lines = [
        f"- medians of {n.rounds} round(s), in each of them every system in turn on the same PostgreSQL; a ratio is the"
        " median of the ratios of each round",
        f"- {n.latency:,} submissions for each latency, {n.singles:,} single and {n.bulk:,} bulk submits, {n.drain:,}"
        f" executions drained (slow peers: fewer); load generator: {generator}",
        "- noise: a bare insert of one row with its commit, p50 / p99 ms, and a fixed loop of Python, ms, just before",
        "",
        "| | system | measured | goal, ratio | noise |",
        "|---|---|---|---|---|",
        *table(samples, n),
        "",
        "| system | configuration |",
        "|---|---|",
        f"| Mainspring | {MAINSPRING} |",
        *[f"| {PEERS[name].title} {pinned(name)} | {PEERS[name].configuration} |" for name in names],
        f"| APScheduler {pinned('apscheduler')} | {APSCHEDULER} |",
        f"| Temporal | {TEMPORAL} |",
        f"| PostgreSQL {postgresql} | for all: `fsync`, `synchronous_commit` and `full_page_writes` on |",
    ]
    if any(PEERS[name].on_redis for name in names):
        lines.append(f"| Redis {redis_version()} | {REDIS} |")
    publish("interactive", lines, figures(samples), written=written)
