"""Lists the functions that a runner can call, so that the worker can state them to the server."""

from __future__ import annotations

import hashlib
import importlib.machinery
import pkgutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

from mainspring.domain.placement.functions import MAX_MODULES, bounded
from mainspring.domain.task import FUNCTION
from mainspring.sdk.job import declared

MAX_LISTED_MODULES = 5_000
MAX_VERSION_CHARS = 100
EVERY = ("*",)


def stated_functions(modules: Sequence[ModuleType]) -> tuple[list[str], dict[str, str]]:
    """Return what `Functions` would find, as entries of a statement, and the versions of the modules.

    Modules below a loaded package that are not imported yet stay so: what they contain is not known.
    """
    by_module: dict[str, Iterable[str]] = {}
    for module in modules:
        if _can_be_named(module.__name__):  # a function of `my-jobs.py` can only be called by the name of its job
            by_module[module.__name__] = _members(module)
        for name in _submodules(module):
            if len(by_module) < MAX_LISTED_MODULES and _can_be_named(name):
                imported = sys.modules.get(name)
                by_module[name] = EVERY if imported is None else _members(imported)
    jobs = [name for name in declared if FUNCTION.match(name)]
    tasks = (str(declaration.spec["task"]["function"]) for declaration, _ in declared.values())
    entries = bounded(by_module, [*jobs, *(task for task in tasks if FUNCTION.match(task))])
    loaded = [found for name in by_module if (found := sys.modules.get(name)) is not None]
    return entries, {found.__name__: _version(found) for found in loaded[:MAX_MODULES]}


def _can_be_named(module: str) -> bool:
    return FUNCTION.match(f"{module}:f") is not None


def _members(module: ModuleType) -> Iterable[str]:
    """The names in a module that a job may call: whatever is public and callable."""
    members = vars(module)
    if "__getattr__" in members:  # names that exist only once they are asked for
        return EVERY
    return [
        name
        for name, value in list(members.items())
        if not name.startswith("_") and callable(value) and FUNCTION.match(f"{module.__name__}:{name}")
    ]


def _submodules(module: ModuleType) -> Iterator[str]:
    """Names of all modules below a package, without importing any."""
    ahead = [(module.__name__, [str(path) for path in vars(module).get("__path__", ())])]
    for _ in range(MAX_LISTED_MODULES):
        if not ahead:
            return
        package, paths = ahead.pop()
        for found in pkgutil.iter_modules(paths):
            name = f"{package}.{found.name}"
            yield name
            if found.ispkg:
                ahead.append((name, [str(Path(path) / found.name) for path in paths]))
        # Folders without __init__.py can be imported as well.
        ahead += [(f"{package}.{folder.name}", [str(folder)]) for path in paths for folder in _plain_folders(path)]


def _plain_folders(path: str) -> list[Path]:
    try:
        folders = [entry for entry in Path(path).iterdir() if entry.name.isidentifier() and entry.is_dir()]
    except OSError:
        return []
    suffixes = importlib.machinery.all_suffixes()
    return [
        folder
        for folder in folders
        if folder.name != "__pycache__" and not any((folder / f"__init__{suffix}").exists() for suffix in suffixes)
    ]


def _version(module: ModuleType) -> str:
    """Its `__version__`, or else a digest of its source."""
    version = vars(module).get("__version__")
    if isinstance(version, str) and version.isprintable() and 0 < len(version) <= MAX_VERSION_CHARS:
        return version
    try:
        source = Path(str(vars(module).get("__file__"))).read_bytes()
    except OSError:
        return ""
    return f"sha256:{hashlib.sha256(source).hexdigest()[:12]}"
