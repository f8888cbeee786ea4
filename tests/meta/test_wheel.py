"""The built wheel holds everything that Mainspring needs when installed."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools.tree import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return zipfile.ZipFile(next(target.glob("*.whl")))


def test_every_source_file_is_packed(wheel: zipfile.ZipFile) -> None:
    """SQL, templates and static files too: nothing is found missing only after an installation."""
    source = ROOT / "src"
    expected = {
        path.relative_to(source).as_posix()
        for path in (source / "mainspring").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert expected - set(wheel.namelist()) == set()


def test_nothing_else_is_packed(wheel: zipfile.ZipFile) -> None:
    strangers = [name for name in wheel.namelist() if not name.startswith(("mainspring/", "mainspring-"))]
    assert strangers == []


def test_command_licence_and_executors_are_declared(wheel: zipfile.ZipFile) -> None:
    info = next(Path(name).parent.as_posix() for name in wheel.namelist() if name.endswith("/METADATA"))
    entry_points = wheel.read(f"{info}/entry_points.txt").decode()
    assert "mainspring = mainspring.cli.main:main" in entry_points
    assert "[mainspring.executors]" in entry_points
    assert f"{info}/licenses/LICENSE" in wheel.namelist()
