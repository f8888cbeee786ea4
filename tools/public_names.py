"""Writes the list of public names: what `import mainspring` offers and the routes of the server.

Run as `python -m tools.public_names`. A test compares the list with the code, so that every change is deliberate.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from types import ModuleType

from tools.tree import ROOT, SOURCE, python_files

LIST = ROOT / "tests" / "meta" / "public_names.txt"
_DECLARES_ROUTE = re.compile(r"route|mount|endpoint|^(?:get|post|put|patch|delete)$", re.IGNORECASE)


def names() -> Iterator[str]:
    package = importlib.import_module("mainspring")
    offered = getattr(package, "__all__", None) or [
        name
        for name, value in vars(package).items()
        if not name.startswith("_") and not isinstance(value, ModuleType) and name != "annotations"
    ]
    return (f"mainspring.{name}" for name in offered)


def routes(source: str) -> Iterator[str]:
    """Yield the paths of calls that declare a route, such as `Route("/metrics", ...)` or `@post("/jobs")`."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not _DECLARES_ROUTE.search(ast.unparse(node.func).split(".")[-1]):
            continue
        constants = [part.value for part in node.args if isinstance(part, ast.Constant)]
        words = [value for value in constants if isinstance(value, str)]
        verb = "".join(f"{word} " for word in words if word in {"GET", "POST", "PUT", "PATCH", "DELETE"})
        yield from (f"{verb}{word}" for word in words if word.startswith("/"))


def listing() -> str:
    found = set(names())
    for surface in ("api", "web"):
        for path in python_files(SOURCE / surface):
            found.update(routes(path.read_text(encoding="utf-8")))
    return "".join(f"{name}\n" for name in sorted(found))


if __name__ == "__main__":
    LIST.write_text(listing(), encoding="utf-8")
