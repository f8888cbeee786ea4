"""The worker protocol as committed JSON Schemas, one set for each version of it.

`python -m tools.protocol` records the messages as they are now. What an older worker or server could not read is
refused until `wire.PROTOCOL` says a new version; a test compares, so that no message changes by accident.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec

from mainspring import wire
from tools.tree import ROOT

RECORD = ROOT / "tests" / "dispatch" / "protocol.json"
MESSAGES: tuple[type[msgspec.Struct], ...] = (
    wire.Register, wire.Registered, wire.Poll, wire.Polled, wire.Results, wire.Settled, wire.Heartbeat, wire.Beat,
    wire.Goodbye,
)  # fmt: skip
_NOTES = frozenset(("title", "description", "default"))


def schemas() -> dict[str, Any]:
    """The messages as they are now."""
    references, defs = msgspec.json.schema_components(MESSAGES)
    named = {kind.__name__: reference for kind, reference in zip(MESSAGES, references, strict=True)}
    found: dict[str, Any] = json.loads(msgspec.json.encode({"messages": named, "$defs": defs}, order="sorted"))
    return found


def recorded() -> dict[str, Any]:
    """What was agreed on, by version."""
    found: dict[str, Any] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return found


def breaking(old: Any, new: Any, at: str = "") -> list[str]:
    """Where messages are no more what the other side expects. What may be left out can be added, and other choices."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return [] if old == new else [at]
    found = [f"{at}/{word}" for word in new.keys() - old.keys() - _NOTES]
    for word, was in old.items():
        here, now = f"{at}/{word}", new.get(word)
        if word in _NOTES:
            continue
        if word in ("properties", "$defs", "messages", "mapping"):
            for name, one in was.items():
                found += breaking(one, (now or {}).get(name), f"{here}/{name}")
        elif word == "prefixItems":
            for place, one in enumerate(was):
                found += breaking(one, dict(enumerate(now or ())).get(place), f"{here}/{place}")
        elif word in ("anyOf", "enum"):
            found += [here] if any(one not in (now or ()) for one in was) else []
        elif word == "maxItems":
            found += [here] if now is None or now < was else []
        elif word == "required":
            found += [here] if set(was) != set(now or ()) else []
        else:
            found += breaking(was, now, here)
    return found


def main() -> None:
    record, now = recorded(), schemas()
    if wrong := breaking(record.get(wire.PROTOCOL, now), now):
        listed = "\n  ".join(wrong)
        sys.exit(f"protocol {wire.PROTOCOL} would change where others rely on it; give it a new version:\n  {listed}")
    record[wire.PROTOCOL] = now
    RECORD.write_text(json.dumps(record, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
