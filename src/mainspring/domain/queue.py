"""Queue settings and their defaults."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from mainspring.domain.placement.demand import Demand
from mainspring.domain.placement.isolation import MinIsolation

Placement = Literal["auto", "best_fit", "least_loaded"]


class QueueSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of one queue. Durations are seconds."""

    cap: Annotated[int, msgspec.Meta(ge=1)] | None = None
    lease_s: Annotated[float, msgspec.Meta(ge=2, le=3600)] | None = None
    patience_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 30.0
    placement: Placement = "auto"
    may_help: Annotated[tuple[str, ...], msgspec.Meta(max_length=100)] = ()
    paused: bool = False
    max_duration_s: Annotated[float, msgspec.Meta(ge=1, le=31_536_000)] | None = None
    min_isolation: MinIsolation = "none"

    def packs(self, demand: Demand) -> bool:
        """Whether to place by best fit (fullest worker first) instead of least load."""
        return self.placement == "best_fit" or (self.placement == "auto" and demand.scarce)


DEFAULTS = QueueSettings()
