"""Reads YAML and JSON of a source into plain values, with the line of each mapping and list.

Both readers take linear time, keep no recursion, and bound the nesting. YAML aliases are refused: a short text could
stand for a long one.
"""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from mainspring.domain.errors import Invalid, Problem
from mainspring.importers.plan import MAX_DEPTH, SourceFile, check_size

MAX_VALUES = 200_000
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})\Z")
_FLOAT = re.compile(r"-?[0-9]{1,18}\.[0-9]{1,18}\Z")
_WORDS = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_TRUTH = {
    word: value
    for value, names in ((True, ("true", "yes", "on")), (False, ("false", "no", "off")))
    for name in names
    for word in (name, name.capitalize(), name.upper())
}
_TOKEN = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*+"|-?[0-9][0-9.eE+-]{0,40}|true\b|false\b|null\b|[\[\]{},:]|[ \t\r\n]++')
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Mapping(dict[str, Any]):
    """A mapping with the line of its beginning and of each key."""

    line = 0

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, int] = {}

    def line_of(self, key: str) -> int:
        return self.lines.get(key, self.line)


class Items(list[Any]):
    """A list with the line of its beginning."""

    line = 0


def line_of(value: Any, default: int = 1) -> int:
    """The line of a mapping or list."""
    return value.line if isinstance(value, Mapping | Items) else default


def read_yaml(file: SourceFile) -> list[Any]:
    """The documents of a YAML text, without empty ones."""
    check_size(file)
    build, documents = _Builder(file), []
    try:
        for event in yaml.parse(file.text, _LOADER):
            line = event.start_mark.line + 1
            match event:
                case yaml.AliasEvent():
                    raise _invalid(file, line, "aliases are not read", "write the value in place of the alias")
                case yaml.MappingStartEvent():
                    build.open(Mapping(), line)
                case yaml.SequenceStartEvent():
                    build.open(Items(), line)
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    build.close()
                case yaml.ScalarEvent():
                    plain = event.implicit[0] and event.style in (None, "")  # libyaml says "" for plain
                    build.put(_scalar(event.value) if plain and not build.wants_key else event.value, line)
                case yaml.DocumentEndEvent():
                    documents.append(build.take())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        raise _invalid(file, line, f"invalid YAML: {error.problem}", "check indentation and quotes") from None
    except yaml.YAMLError as error:
        raise _invalid(file, 1, f"invalid YAML: {error}", "check the characters of the file") from None
    return [document for document in documents if document is not None]


def read_json(file: SourceFile) -> Any:
    """The value of a JSON text."""
    check_size(file)
    build, line, at = _Builder(file), 1, 0
    text = file.text.removeprefix("\ufeff")
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise _invalid(file, line, f"invalid JSON at {text[at : at + 20]!r}", "export it again")
        found, at = token[0], token.end()
        if found in "{[":
            build.open(Mapping() if found == "{" else Items(), line)
        elif found in "}]":
            build.close("{" if found == "}" else "[", line)
        elif found in ",:" or found[0] in " \t\r\n":
            line += found.count("\n")
        else:
            build.put(_json_scalar(file, line, found), line)
    return build.take(line)


class _Builder:
    """Builds one value out of what a parser finds, with a stack of its own."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._stack: list[Mapping | Items] = []
        self._keys: list[str | None] = []
        self._values = 0
        self._root: Any = None
        self._is_done = False

    @property
    def wants_key(self) -> bool:
        return bool(self._stack) and isinstance(self._stack[-1], Mapping) and self._keys[-1] is None

    def open(self, value: Mapping | Items, line: int) -> None:
        if len(self._stack) >= MAX_DEPTH:
            raise _invalid(self._file, line, f"nested deeper than {MAX_DEPTH} levels", "simplify the file")
        value.line = line
        self.put(value, line)
        self._stack.append(value)
        self._keys.append(None)

    def close(self, bracket: str | None = None, line: int = 1) -> None:
        if not self._stack or bracket not in (None, "{" if isinstance(self._stack[-1], Mapping) else "["):
            raise _invalid(self._file, line, "unexpected closing bracket", "check the brackets")
        self._stack.pop()
        self._keys.pop()

    def put(self, value: Any, line: int) -> None:
        self._values += 1
        if self._values > MAX_VALUES:
            raise _invalid(self._file, line, f"more than {MAX_VALUES:,} values", "import it in parts")
        if not self._stack:
            if self._is_done:
                raise _invalid(self._file, line, "text after the end of the value", "check the brackets")
            self._root, self._is_done = value, True
            return
        top = self._stack[-1]
        if isinstance(top, Items):
            top.append(value)
        elif self._keys[-1] is None:
            if not isinstance(value, str):
                raise _invalid(self._file, line, "a key is not a text", "put it in quotes")
            if value in top:
                raise _invalid(self._file, line, f"duplicate key {value[:64]!r}", "remove one of them")
            self._keys[-1] = value
            top.lines[value] = line
        else:
            top[self._keys[-1]], self._keys[-1] = value, None

    def take(self, line: int = 1) -> Any:
        if self._stack:
            raise _invalid(self._file, line, "the file ends inside a value", "export it again")
        root, self._root, self._is_done = self._root, None, False
        return root


def _scalar(text: str) -> Any:
    if text in _WORDS:
        return None
    if text in _TRUTH:
        return _TRUTH[text]
    if _NUMBER.match(text):
        return int(text)
    return float(text) if _FLOAT.match(text) else text


def _json_scalar(file: SourceFile, line: int, token: str) -> Any:
    try:
        return json.loads(token)
    except ValueError:
        raise _invalid(file, line, f"invalid JSON value {token[:40]!r}", "export it again") from None


def _invalid(file: SourceFile, line: int, message: str, hint: str) -> Invalid:
    where = f"{file.name}:{line}"
    return Invalid(f"{where}: {message}", code="unreadable_source", problems=(Problem(where, message, hint),))
