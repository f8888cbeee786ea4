"""Scripts of others: pinned by hash, from wherever the machine's npm gets its packages, and optional."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import assets


def test_the_lock_file_pins_by_hash_and_names_no_host() -> None:
    locked = json.loads((assets.LOCKED / "package-lock.json").read_text())["packages"]
    packages = {name: package for name, package in locked.items() if name}
    assert {path.partition("/dist")[0].removesuffix("/LICENSE") for path in assets.FILES.values()} == {
        name.removeprefix("node_modules/") for name in packages
    }
    assert all(package["integrity"].startswith("sha512-") for package in packages.values())
    assert "://" not in json.dumps(locked)


def test_an_installation_goes_on_without_npm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(assets, "STAMP", tmp_path / "none")
    monkeypatch.setenv("PATH", str(tmp_path))
    assets.main(must=False)
    assert "npm is not installed" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        assets.main(must=True)
