"""Which time zone rules this program computes by: instants are kept together with the version that made them."""

from __future__ import annotations

import zoneinfo
from functools import cache
from importlib import metadata
from pathlib import Path


@cache
def rules_version() -> str:
    """The release of the IANA database that `zoneinfo` reads, such as 2026a: the machine's if it has one, else ours."""
    for folder in map(Path, zoneinfo.TZPATH):
        if folder.is_dir():
            return _of_machine(folder) or "unknown"
    return _of_package()


def _of_machine(folder: Path) -> str:
    try:
        with (folder / "tzdata.zi").open(encoding="ascii") as rules:
            return rules.readline().removeprefix("# version").strip()
    except OSError:
        return ""


def _of_package() -> str:
    try:
        major, _, minor = metadata.version("tzdata").partition(".")
    except metadata.PackageNotFoundError:
        return "unknown"
    return f"{major}{chr(ord('a') + int(minor.partition('.')[0]) - 1)}" if minor[:1].isdecimal() else major
