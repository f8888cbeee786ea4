"""Programs of Debian packages that `make install-system` unpacks without installing them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tools.tree import ROOT

UNPACKED = ROOT / ".cache" / "debian"


def find_program(name: str) -> Path:
    """Return the path of a program; skip the test if the machine does not have it."""
    for folder in ("usr/bin", "usr/sbin"):
        if (UNPACKED / folder / name).exists():
            return UNPACKED / folder / name
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed: run make install-system")
    return Path(found)


def library_path() -> str:
    return ":".join(str(path) for path in (UNPACKED / "usr" / "lib").glob("*-linux-gnu"))
