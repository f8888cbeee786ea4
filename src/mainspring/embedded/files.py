"""Atomic file replacement and fsync."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path


def replace(path: Path, text: str) -> None:
    """Replace `path` with `text` atomically, readable only by its owner; a crash leaves the old or the new file."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(tree: Path) -> None:
    """Make everything below `tree` durable."""
    if sys.platform == "linux" and _sync_file_system(tree):
        return
    for folder, _, files in os.walk(tree):
        for name in files:
            with open(Path(folder, name), "rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(folder))


def _sync_file_system(folder: Path) -> bool:
    # One journal commit instead of one for each of a thousand new files.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        return int(ctypes.CDLL(None).syncfs(descriptor)) == 0
    finally:
        os.close(descriptor)
