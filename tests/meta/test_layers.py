"""The import contracts of pyproject.toml hold, and would notice a breach."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.tree import ROOT

LINT = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]


def test_the_tree_keeps_its_layers() -> None:
    checked = subprocess.run(LINT, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("domain/breach.py", "import mainspring.store"),
        ("domain/breach.py", "import asyncio"),
        ("scheduler/breach.py", "import mainspring.dispatch"),
        ("worker/breach.py", "import mainspring.store"),
        ("worker/breach.py", "import asyncpg"),
        ("store/breach.py", "import mainspring.intake"),
        ("intake/breach.py", "import asyncpg"),
        ("web/breach.py", "import mainspring.cli"),
        ("cli/breach.py", "import mainspring.web"),
        ("importers/breach.py", "import subprocess"),
        ("importers/breach.py", "import mainspring.client"),
        ("importers/rules/breach.py", "import mainspring.domain"),
        ("newcomer.py", ""),
    ],
)
def test_a_breach_is_noticed(module: str, statement: str, tmp_path: Path) -> None:
    assert "0 broken" not in contracts(tmp_path, module, statement)


def test_an_import_downwards_is_kept(tmp_path: Path) -> None:
    assert "0 broken" in contracts(tmp_path, "intake/submit.py", "import mainspring.store, mainspring.domain")


def contracts(tmp_path: Path, module: str, statement: str) -> str:
    """What the linter says of a skeleton that has the real package names and one module of its own."""
    package = tmp_path / "mainspring"
    for source in (ROOT / "src" / "mainspring").rglob("__init__.py"):
        copy = package / source.relative_to(ROOT / "src" / "mainspring")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.touch()
    (package / module).write_text(statement + "\n")
    command = [*LINT, "--config", str(ROOT / "pyproject.toml")]
    checked = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert "Contracts: " in checked.stdout, checked.stdout + checked.stderr
    return checked.stdout
