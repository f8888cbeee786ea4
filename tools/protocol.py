"""Records the worker protocol as JSON Schemas, one set per protocol version.

`python -m tools.protocol` records the current messages. It rejects a change that older workers or servers cannot read,
unless `wire.PROTOCOL` is a new version. A test compares, so that no message changes by accident.
"""

from __future__ import annotations

import json
import sys
from typing import Any, get_args

import msgspec

from mainspring import wire
from tools.tree import ROOT

RECORD = ROOT / "tests" / "dispatch" / "protocol.json"
MESSAGES: tuple[type[msgspec.Struct], ...] = (
    wire.Register, wire.Registered, wire.Poll, wire.Polled, wire.Results, wire.Settled, wire.Heartbeat, wire.Beat,
    wire.Goodbye, *get_args(wire.WorkerMessage), *get_args(wire.ApiMessage),
)  # fmt: skip
_ANNOTATIONS = frozenset(("title", "description", "default"))
_BOUNDS = frozenset(("maxLength", "maxProperties", "maximum", "minimum", "propertyNames"))
"""Left out of the comparison: bounds of texts and numbers are far above what programs send."""


def schemas() -> dict[str, Any]:
    """Return the schemas of the current messages."""
    references, defs = msgspec.json.schema_components(MESSAGES)
    named = {kind.__name__: reference for kind, reference in zip(MESSAGES, references, strict=True)}
    found: dict[str, Any] = json.loads(msgspec.json.encode({"messages": named, "$defs": defs}, order="sorted"))
    return found


def recorded() -> dict[str, Any]:
    """Return the recorded schemas by version."""
    found: dict[str, Any] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return found


def breaking(old: Any, new: Any, at: str = "") -> list[str]:
    """Return the pointers of incompatible changes. Optional fields and further choices may be added."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return [] if old == new else [at]
    found = [f"{at}/{word}" for word in new.keys() - old.keys() - _ANNOTATIONS - {"maxItems"}]
    for word, before in old.items():
        here, now = f"{at}/{word}", new.get(word)
        if word in _ANNOTATIONS:
            continue
        if word in ("properties", "$defs", "messages", "mapping"):
            for name, one in before.items():
                found += breaking(one, (now or {}).get(name), f"{here}/{name}")
        elif word == "prefixItems":
            for place, one in enumerate(before):
                found += breaking(one, dict(enumerate(now or ())).get(place), f"{here}/{place}")
        elif word in ("anyOf", "enum"):
            found += [here] if any(one not in (now or ()) for one in before) else []
        elif word == "maxItems":
            found += [here] if now is None or now < before else []
        elif word == "required":
            found += [here] if set(before) != set(now or ()) else []
        else:
            found += breaking(before, now, here)
    return found


def without_bounds(schema: Any, left_out: frozenset[str] = _BOUNDS) -> Any:
    if isinstance(schema, list):
        return [without_bounds(one, left_out) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        word: without_bounds(one, left_out | {"maxItems"} if word == "anyOf" else left_out)
        for word, one in schema.items()
        if word not in left_out
    }


def main() -> None:
    record, now = recorded(), schemas()
    if changes := breaking(without_bounds(record.get(wire.PROTOCOL, now)), without_bounds(now)):
        listed = "\n  ".join(changes)
        sys.exit(f"incompatible changes of protocol {wire.PROTOCOL}; raise wire.PROTOCOL:\n  {listed}")
    record[wire.PROTOCOL] = now
    RECORD.write_text(json.dumps(record, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
