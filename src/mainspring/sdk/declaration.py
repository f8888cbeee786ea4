"""Declared jobs: what code declares, and the registry of this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Declaration:
    """A job as code declares it; `spec` has the fields of the API."""

    spec: dict[str, Any]
    file: str
    line: int
    returns: Any = Any

    @property
    def name(self) -> str:
        return str(self.spec["name"])


declared: dict[str, tuple[Declaration, Callable[..., Any]]] = {}
"""Every job declared in this process, by name."""
