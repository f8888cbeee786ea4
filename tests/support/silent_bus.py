"""A bus without messages: the code under test must find its work by its periodic checks."""

from __future__ import annotations

from collections.abc import Callable


class SilentBus:
    def subscribe(self, channel: str, hear: Callable[[str], None], *, on_gap: Callable[[], None]) -> None:
        pass

    def publish(self, channel: str, payload: str, *, lowest: int | None = None, only_here: bool = False) -> None:
        pass
