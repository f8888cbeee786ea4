"""Resource amounts: cpu, memory, disk, gpu and custom counts.

Amounts are stored as integers: cpu in millicores, memory and disk in bytes, others as counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

Amounts = dict[str, int]
Written = Mapping[str, str | int | float]

NAME = re.compile(r"[a-z][a-z0-9_.-]{0,62}\Z")
COMMON = ("cpu", "memory", "disk")
"""Resources of every machine. Others (gpu, a licence) are scarce and placed by best fit."""

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?)b?\Z", re.IGNORECASE | re.ASCII)
_CPU = re.compile(r"(\d+(?:\.\d+)?)(m?)\Z", re.ASCII)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_MOST = 2**53
MAX_CHARS = 40


def parse_amounts(written: Written) -> Amounts:
    """Parse amounts to integers; zeros are left out. A ValueError names the resource and the reason."""
    found = {name: parse_amount(name, value) for name, value in written.items()}
    return {name: amount for name, amount in sorted(found.items()) if amount}


def parse_amount(name: str, value: str | int | float) -> int:
    if not NAME.match(name):
        raise ValueError(f"{name!r} is not a resource; write cpu, memory, disk, gpu or a name like licence-a")
    if isinstance(value, bool):
        raise ValueError(f"{name} is a number, not {value}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} is not a number")
    if isinstance(value, str) and len(value) > MAX_CHARS:
        raise ValueError(f"{name}: an amount has at most {MAX_CHARS} characters")
    if not isinstance(value, str) and abs(value) > _MOST:
        raise ValueError(f"{name}: the amount is out of range")
    amount = _amount(name, str(value).strip())
    if amount < 0 or amount > _MOST:
        raise ValueError(f"{name}: {value} is out of range")
    return amount


def _amount(name: str, text: str) -> int:
    if name == "cpu":
        if (found := _CPU.match(text)) is None:
            raise ValueError(f"cpu: {text!r} is not a number of cores; write 2, 0.5 or 500m")
        return round(float(found[1]) * (1 if found[2] else 1000))
    if name in ("memory", "disk"):
        if (found := _SIZE.match(text)) is None:
            raise ValueError(f"{name}: {text!r} is not a size; write bytes, 512Mi, 4Gi or 10G")
        unit = (1024.0 if found[3] else 1000.0) ** _POWER[found[2].lower()]
        return round(float(found[1]) * unit)
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{name}: {text!r} is not a whole number")
    return int(text)


def show_amount(name: str, amount: int) -> str:
    """Format an amount as users write it."""
    if name == "cpu":
        return f"{amount / 1000:g}"
    if name in ("memory", "disk"):
        for unit, power in (("Ti", 4), ("Gi", 3), ("Mi", 2), ("Ki", 1)):
            if amount >= 1024**power:
                return f"{amount / 1024**power:.3g}{unit}"
    return str(amount)


def show_amounts(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {show_amount(name, amount)}" for name, amount in amounts.items())
