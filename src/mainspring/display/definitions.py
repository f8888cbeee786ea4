"""Job definitions as JSON values, and the patch between two of them."""

from __future__ import annotations

from typing import Any

import msgspec

from mainspring.domain.job import JobSpec


def as_json(spec: JobSpec) -> dict[str, Any]:
    values = msgspec.to_builtins(spec)
    assert isinstance(values, dict)
    return values


def merge_patch(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The merge patch (RFC 7396) that turns `old` into `new`."""
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            inner = merge_patch(before, value)
            patch.update({name: inner} if inner else {})
        elif name not in old or value != before:
            patch[name] = value
    return patch
