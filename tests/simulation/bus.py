"""Hints between simulated processes: some arrive at once, the others are lost."""

from __future__ import annotations

import random
from collections.abc import Callable


class SimulatedBus:
    """Implements ports.Bus. `of` returns it as one process sees it, so that its subscriptions end with it."""

    def __init__(self) -> None:
        self.rng = random.Random(0)
        self.loss = 0.3
        self._hear: dict[str, list[tuple[str, Callable[[str], None]]]] = {}

    def of(self, process: str) -> SimulatedBus:
        return _Joined(self, process)

    def forget(self, process: str) -> None:
        self._hear.pop(process, None)

    def listen(self, process: str, channel: str, hear: Callable[[str], None]) -> None:
        self._hear.setdefault(process, []).append((channel, hear))

    def subscribe(self, channel: str, hear: Callable[[str], None], *, on_gap: Callable[[], None]) -> None:
        self.listen("", channel, hear)

    def publish(self, channel: str, payload: str, *, lowest: int | None = None, only_here: bool = False) -> None:
        text = payload if lowest is None else f"{payload} {lowest}"
        for subscriptions in list(self._hear.values()):
            if self.rng.random() < self.loss:
                continue
            for wanted, hear in subscriptions:
                if wanted == channel:
                    hear(text)


class _Joined(SimulatedBus):
    def __init__(self, bus: SimulatedBus, process: str) -> None:
        self._bus, self._process = bus, process

    def of(self, process: str) -> SimulatedBus:
        return self._bus.of(process)

    def subscribe(self, channel: str, hear: Callable[[str], None], *, on_gap: Callable[[], None]) -> None:
        self._bus.listen(self._process, channel, hear)

    def publish(self, channel: str, payload: str, *, lowest: int | None = None, only_here: bool = False) -> None:
        self._bus.publish(channel, payload, lowest=lowest, only_here=only_here)
