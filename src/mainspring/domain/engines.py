"""Optional engines as seen by users: their states per process, and what replaces them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

PREFIX = "engine:"
INSTEAD = {
    "bus": "wake-ups go through PostgreSQL",
    "cache": "each api process uses its own cache",
    "rate_limit": "each api process counts requests on its own",
    "coordinator": "lost schedulers are detected when their leases expire",
    "delays": "schedulers read the next due instants from PostgreSQL",
    "fire_lock": "the shard rows alone keep a former owner from firing",
    "queue": "executions are claimed from PostgreSQL",
    "results": "workers send results to the api",
    "events": "events wait in the outbox",
    "triggers": "messages wait in their topics",
}
"""What happens while the engine of a role is unavailable."""


@dataclass(frozen=True, slots=True)
class EngineState:
    """Whether a process is connected to the engine of a role."""

    process: str
    role: str
    engine: str
    up: bool

    @property
    def instead(self) -> str:
        """What happens meanwhile, if it is not connected."""
        return INSTEAD.get(self.role, "PostgreSQL replaces it")

    def __str__(self) -> str:
        if self.up:
            return f"{self.process} uses {self.engine} as {self.role}"
        return f"{self.process} has no connection to {self.engine} ({self.role}): {self.instead}"


def figure_of(role: str, engine: str) -> str:
    """The name of the figure in which a process publishes the state of an engine."""
    return f"{PREFIX}{role}:{engine}"


def engine_states(processes: Iterable[tuple[str, Mapping[str, float]]]) -> Iterator[EngineState]:
    """Return the states that processes have published, by process and figures."""
    for process, figures in processes:
        for name, value in figures.items():
            if name.startswith(PREFIX):
                role, _, engine = name.removeprefix(PREFIX).partition(":")
                yield EngineState(process, role, engine, value > 0)
