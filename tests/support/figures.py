"""Figures of fault tests: one line of JSON each, printed, and appended to the file that FAULT_FIGURES names."""

from __future__ import annotations

import json
import os
from typing import Any

from tests.support.seeds import SEED


def record(fault: str, *, timeline: list[tuple[int, int, float]] | None = None, **figures: Any) -> None:
    """Print figures. With a file, write them there too, with seed and timeline: (second, fires, latest start delay)."""
    print(json.dumps({"fault": fault, **figures}))
    if path := os.environ.get("FAULT_FIGURES"):
        line = json.dumps({"fault": fault, "seed": SEED, "figures": figures, "timeline": timeline or []})
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{line}\n")
