"""The version of the time zone database, which is stored with the instants computed from it."""

from __future__ import annotations

import zoneinfo
from functools import cache
from importlib import metadata
from pathlib import Path


@cache
def rules_version() -> str:
    """Return the release of the IANA database that `zoneinfo` reads, such as 2026a: the system's, or the package's."""
    for folder in map(Path, zoneinfo.TZPATH):
        if folder.is_dir():
            return _system_version(folder) or "unknown"
    return _package_version()


def _system_version(folder: Path) -> str:
    try:
        with (folder / "tzdata.zi").open(encoding="ascii") as rules:
            return rules.readline().removeprefix("# version").strip()
    except OSError:
        return ""


def _package_version() -> str:
    try:
        major, _, minor = metadata.version("tzdata").partition(".")
    except metadata.PackageNotFoundError:
        return "unknown"
    return f"{major}{chr(ord('a') + int(minor.partition('.')[0]) - 1)}" if minor[:1].isdecimal() else major
