"""What a worker states about its functions is what its runners can call."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainspring.worker.python import loader
from tests.support.attempts import Registry

pytestmark = pytest.mark.anyio

JOB = "import mainspring as ms\n\n@ms.job(name='{name}')\ndef {function}() -> int:\n    return 1\n"


async def stated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *targets: str) -> tuple[list[str], dict[str, str]]:
    monkeypatch.chdir(tmp_path)
    found = (await loader.read_declared(targets, Registry(), {})).functions
    return found.functions, found.modules


async def test_public_functions_and_classes_are_stated_and_private_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.py").write_text(
        "from os.path import join\n__version__ = '1.4'\nN = 3\ndef pay(): ...\ndef _secret(): ...\nclass Refund: ...\n"
    )
    functions, modules = await stated(tmp_path, monkeypatch, "shop")
    assert functions == ["shop:Refund", "shop:join", "shop:pay"]
    assert modules == {"shop": "1.4"}


async def test_modules_below_a_package_are_stated_without_importing_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = tmp_path / "my" / "app"
    for folder in (app / "plain", app / "deep"):
        folder.mkdir(parents=True)
    (app / "__init__.py").write_text("from my.app import used\n")
    (app / "used.py").write_text("def f(): ...\n")
    for file in (app / "unused.py", app / "deep" / "__init__.py", app / "deep" / "down.py", app / "plain" / "bare.py"):
        file.write_text("raise RuntimeError('imported')\n")
    functions, modules = await stated(tmp_path, monkeypatch, "my.app")
    assert functions == [
        "my.app.deep.down:*",
        "my.app.deep:*",
        "my.app.plain.bare:*",
        "my.app.unused:*",
        "my.app.used:f",
    ]
    assert sorted(modules) == ["my.app", "my.app.used"] and modules["my.app"].startswith("sha256:")


async def test_declared_jobs_are_stated_by_name_wherever_they_are_defined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere.py").write_text(JOB.format(name="nightly", function="_night"))
    (tmp_path / "main.py").write_text("import elsewhere\n")
    (tmp_path / "my-jobs.py").write_text("def work(): ...\n")  # no job can name a function in it
    functions, _ = await stated(tmp_path, monkeypatch, "main", "./my-jobs.py")
    assert functions == ["elsewhere:_night", "nightly"]


async def test_a_module_that_makes_its_names_on_demand_has_every_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lazy.py").write_text("def __getattr__(name): return print\n")
    assert (await stated(tmp_path, monkeypatch, "lazy"))[0] == ["lazy:*"]
