"""Three-way merge: what the file says, what it said when it was last applied, and what the server has. Pure.

- A field that the file sets gets its value.
- A field that the file had set, and sets no longer, returns to its default.
- Every other field keeps the value that other users gave it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Path = tuple[str, ...]
MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """A field with two values; `MISSING` stands for an absent one."""

    path: Path
    old: Any
    new: Any


def merge(
    live: dict[str, Any], last: dict[str, Any], new: dict[str, Any], whole: frozenset[Path], at: Path = ()
) -> dict[str, Any]:
    """Return the fields that result from applying `new` after `last` to `live`."""
    merged = dict(live)
    for key, value in new.items():
        before = live.get(key)
        if isinstance(value, dict) and isinstance(before, dict) and not is_whole((*at, key), whole):
            known = last.get(key)
            merged[key] = merge(before, known if isinstance(known, dict) else {}, value, whole, (*at, key))
        else:
            merged[key] = value
    for key in last.keys() - new.keys():
        before, known = live.get(key), last[key]
        if isinstance(before, dict) and isinstance(known, dict) and not is_whole((*at, key), whole):
            rest = merge(before, known, {}, whole, (*at, key))
            merged[key] = rest
            if rest:
                continue
        merged.pop(key, None)
    return merged


def differences(old: Any, new: Any, whole: frozenset[Path], at: Path = ()) -> Iterator[Difference]:
    """The fields in which two definitions differ; lists and `whole` fields are one value."""
    if old == new and type(old) is type(new):
        return
    if isinstance(old, dict) and isinstance(new, dict) and not is_whole(at, whole):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from differences(old.get(key, MISSING), new.get(key, MISSING), whole, (*at, key))
    elif old != new:
        yield Difference(at, old, new)


def at_path(values: Any, path: Path) -> Any:
    """The value of a field; `MISSING` if it is not set."""
    for key in path:
        if not isinstance(values, dict) or key not in values:
            return MISSING
        values = values[key]
    return values


def leaves(values: dict[str, Any], whole: frozenset[Path], at: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The fields of a definition; an empty mapping is a field."""
    for key, value in values.items():
        if isinstance(value, dict) and value and not is_whole((*at, key), whole):
            yield from leaves(value, whole, (*at, key))
        else:
            yield (*at, key), value


def is_whole(path: Path, whole: frozenset[Path]) -> bool:
    """Whether a field is compared and replaced as one value."""
    return path in whole or (
        len(path) > 1
        and any(
            len(pattern) == len(path) and all(p in ("*", part) for p, part in zip(pattern, path, strict=True))
            for pattern in whole
        )
    )
