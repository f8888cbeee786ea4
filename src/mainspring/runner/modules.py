"""Loads the modules with functions, by name or by path, and says where in which file it went wrong."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType


class BadModule(Exception):
    """A module can't be loaded; the message begins with file and line."""


def load(targets: Iterable[str]) -> list[ModuleType]:
    """Each target is a module (`app.jobs`), a file (`jobs/report.py`) or a folder of files."""
    found = []
    for target in targets:
        path = Path(target)
        if path.suffix == ".py" or "/" in target or path.is_dir():
            found += [_load_file(file) for file in files_of(path)]
        else:
            found.append(_loaded(target, partial(importlib.import_module, target)))
    return found


def files_of(path: Path) -> Iterator[Path]:
    """The modules of a folder, or the file itself."""
    if path.is_dir():
        yield from sorted(file for file in path.glob("*.py") if not file.name.startswith((".", "_")))
    elif path.exists():
        yield path
    elif path.suffix == ".py":
        raise BadModule(f"{path}: there is no such file")


def _load_file(file: Path) -> ModuleType:
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(1, folder)  # so that files beside it can be imported

    def execute() -> ModuleType:
        name = file.stem
        if (known := sys.modules.get(name)) is not None:
            if getattr(known, "__file__", None) == str(file):
                return known  # another file has imported it
            raise ImportError(f"a module {name!r} exists already: rename the file")
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    return _loaded(str(file), execute)


def _loaded(what: str, execute: Callable[[], ModuleType]) -> ModuleType:
    try:
        return execute()
    except BaseException as error:
        raise BadModule(f"{where(error) or what}: {type(error).__name__}: {_message(error)}") from error


def _message(error: BaseException) -> str:
    return error.msg if isinstance(error, SyntaxError) else str(error)


def where(error: BaseException) -> str | None:
    """File and line of the last frame that is not the import machinery's or ours."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    ours = str(Path(__file__).parent.parent)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(("<frozen", ours)) and "/importlib/" not in frame.filename:
            return f"{frame.filename}:{frame.lineno}"
    return None
