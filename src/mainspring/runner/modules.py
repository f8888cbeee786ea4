"""Loads modules by name or path, and reports errors with file and line."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

from mainspring.runner_protocol import BadModule


def load(targets: Iterable[str]) -> list[ModuleType]:
    """Load modules. A target is a module (`app.jobs`), a file (`jobs/report.py`) or a folder of files.

    Raises `BadModule`.
    """
    found = []
    for target in targets:
        path = Path(target)
        if path.suffix == ".py" or "/" in target or path.is_dir():
            found += [_load_file(file) for file in files_of(path)]
        else:
            found.append(_load(target, partial(importlib.import_module, target)))
    return found


def files_of(path: Path) -> Iterator[Path]:
    """Return the Python files of a folder, or the file itself."""
    if path.is_dir():
        yield from sorted(file for file in path.glob("*.py") if not file.name.startswith((".", "_")))
    elif path.exists():
        yield path
    elif path.suffix == ".py":
        raise BadModule(f"{path}: no such file")


def _load_file(file: Path) -> ModuleType:
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(1, folder)  # so that it can import files next to it

    def execute() -> ModuleType:
        name = file.stem
        if (known := sys.modules.get(name)) is not None:
            if getattr(known, "__file__", None) == str(file):
                return known  # imported by another file
            raise ImportError(f"a module named {name!r} already exists; rename the file")
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    return _load(str(file), execute)


def _load(target: str, execute: Callable[[], ModuleType]) -> ModuleType:
    try:
        return execute()
    except BaseException as error:
        raise BadModule(f"{error_location(error) or target}: {type(error).__name__}: {_message(error)}") from error


def _message(error: BaseException) -> str:
    return error.msg if isinstance(error, SyntaxError) else str(error)


def error_location(error: BaseException) -> str | None:
    """Return file and line of the last frame outside the import machinery and Mainspring."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    mainspring = str(Path(__file__).parent.parent)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(("<frozen", mainspring)) and "/importlib/" not in frame.filename:
            return f"{frame.filename}:{frame.lineno}"
    return None
