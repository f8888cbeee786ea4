"""`{{name}}` templates in task values: plain substitution in one pass, resolved when an attempt starts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from mainspring.domain.errors import MAX_PROBLEMS, Problem, clipped
from mainspring.domain.secret import as_template
from mainspring.domain.suggestion import closest

NAMES = ("fire_at", "execution_date", "execution_id", "attempt", "job", "run_id")
"""Names available in every task, in addition to `params.<name>`. `run_id` is empty outside a workflow."""

_PLACE = re.compile(r"\{\{([^{}]*+)\}\}")  # linear: blanks are stripped from the name, not matched
MAX_INSERTED_CHARS = 2_000_000
"""How much text templates may insert into one task: twice the largest request."""
MAX_NAME_CHARS = 200
"""How much of a key a pointer shows."""
_PARAM = re.compile(r"params\.[A-Za-z_][A-Za-z0-9_]*\Z")
_SECRET = re.compile(r"secret:[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")


def unknown_names(text: str) -> list[tuple[str, str]]:
    """The first unknown names in a string, each once and with a hint."""
    found = []
    for name in dict.fromkeys(places(text)):
        if name not in NAMES and not _PARAM.match(name) and not is_secret(name):
            close = closest(name, NAMES)
            hint = (
                f"did you mean {{{{{close}}}}}?"
                if close
                else f"known: {', '.join(NAMES)}, params.<name>, secret:<name>"
            )
            found.append((clipped(name, MAX_NAME_CHARS), hint))
            if len(found) == MAX_PROBLEMS:
                break
    return found


def is_secret(name: str) -> bool:
    """Whether a name in a template refers to a secret."""
    return _SECRET.match(name) is not None


def template_problems(texts: Iterable[tuple[str | Path, str]]) -> list[Problem]:
    """The unknown names in strings with their JSON pointers, at most as many as an error names."""
    found = (
        Problem(str(pointer), f"{{{{{name}}}}} is not known", hint)
        for pointer, text in texts
        for name, hint in unknown_names(text)
    )
    return list(islice(found, MAX_PROBLEMS))


def param_names(text: str) -> Iterator[str]:
    """The parameters that a string refers to."""
    return (name.removeprefix("params.") for name in places(text) if _PARAM.match(name))


def places(text: str) -> list[str]:
    """All names that a string refers to."""
    return [name.strip() for name in _PLACE.findall(text)] if "{{" in text else []


def substituted(text: str, value_of: Callable[[str], str]) -> str:
    """Replace every template by the text that `value_of` returns for its name."""
    return _PLACE.sub(lambda match: value_of(match[1].strip()), text)


def renamed(text: str, rename: Callable[[str], str]) -> str:
    """Rename the names in a string."""
    return substituted(text, lambda name: "{{" + rename(name) + "}}")


class Path:
    """A JSON pointer that is written out only when a problem names it.

    A pointer per string would be as long as all keys above it, and a request may have many strings below long keys.
    """

    __slots__ = ("_name", "_parent")

    def __init__(self, name: str | int, parent: Path | None = None) -> None:
        self._name = name
        self._parent = parent

    def down(self, name: str | int) -> Path:
        return Path(name, self)

    def __str__(self) -> str:
        own = clipped(str(self._name), MAX_NAME_CHARS)
        return own if self._parent is None else f"{self._parent}/{own}"


def strings(value: Any, pointer: str | Path) -> Iterator[tuple[Path, str]]:
    """Yield all strings inside a JSON value with their JSON pointers; object keys are not templates."""
    path = pointer if isinstance(pointer, Path) else Path(pointer)
    if isinstance(value, str):
        yield path, value
    # A generator for each level would pass each string through all of them.
    open_: list[tuple[Iterator[tuple[str | int, Any]], Path]] = [(_items(value), path)]
    while open_:
        items, above = open_[-1]
        for key, item in items:
            if isinstance(item, str):
                yield above.down(key), item
            elif item and isinstance(item, dict | list | tuple):
                open_.append((_items(item), above.down(key)))
                break
        else:
            open_.pop()


def templates(value: Any, pointer: str | Path) -> Iterator[tuple[Path, str]]:
    """Yield the strings of a JSON value as `strings` does; none if it has no template."""
    if b"{{" in msgspec.json.encode(value):
        yield from strings(value, pointer)


def _items(value: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, dict):
        return iter(value.items())
    return iter(enumerate(value)) if isinstance(value, list | tuple) else iter(())


class TooMuchInserted(KeyError):
    """The values that templates insert are too large together; for a template, the value is missing."""


class BoundedValues(Mapping[str, Any]):
    """Values for templates, of which at most `MAX_INSERTED_CHARS` are inserted into one task.

    A name of twenty characters may stand for a result of many kilobytes, and a task may repeat it.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._sizes: dict[str, int] = {}
        self.inserted = 0

    def __getitem__(self, name: str) -> Any:
        value = self._values[name]
        if (size := self._sizes.get(name)) is None:
            size = self._sizes[name] = len(value) if isinstance(value, str) else len(msgspec.json.encode(value))
        self.inserted += size
        if self.inserted > MAX_INSERTED_CHARS:
            message = f"its templates insert more than {MAX_INSERTED_CHARS:,} characters; name each large value once"
            raise TooMuchInserted(message)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def render(text: str, values: Mapping[str, Any]) -> str:
    """Substitute values as text. A missing parameter raises KeyError and fails the attempt."""
    text = as_template(text)
    if "{{" not in text:
        return text
    return _PLACE.sub(lambda match: _text(values[match[1].strip()]), text)


def fill(value: Any, values: Mapping[str, Any]) -> Any:
    """Substitute inside a JSON value. A string that is exactly one template becomes the value itself, with its type."""
    if isinstance(value, str):
        value = as_template(value)
        whole = _PLACE.fullmatch(value)
        return values[whole[1].strip()] if whole else render(value, values)
    if isinstance(value, dict):
        return {key: fill(item, values) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [fill(item, values) for item in value]
    return value


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
