"""Reads YAML within bounds on size, nesting and aliases, with the line and column of every value.

The parser's events are composed here, in a loop: neither deep nesting nor an alias can cost more than the text is long.
libyaml parses if it is installed; it takes a tenth of the time of the parser in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from mainspring.domain.errors import Invalid, Problem

MOST_BYTES = 16_000_000
VALUE_CHARS = 4
MOST_SIZE, MOST_REPEATED, MOST_GROWTH = 100_000_000, 100_000, 5
"""The characters of all values, including those that aliases repeat, and a few for each: at most `MOST_GROWTH` times
the text and `MOST_REPEATED` more."""
MAX_NUMBER_CHARS = 100
MAX_NESTING = 64
MOST_DOCUMENTS = 20_000

_PARSER: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_CORE = "tag:yaml.org,2002:"
_TIMESTAMP = _CORE + "timestamp"
_MERGE = _CORE + "merge"
# Instants stay strings: the server reads them in the time zone of their schedule.
_RESOLVERS: dict[str | None, list[tuple[str, Any]]] = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_TRUE = frozenset(("yes", "true", "on"))
_WORDS = frozenset(("yes", "no", "on", "off"))
"""Booleans of YAML 1.1 that are ordinary words; as keys (`on: [failed]`) they are read as words."""
_EXPLICIT = {f"{_CORE}{name}" for name in ("str", "int", "float", "bool", "null")} | {"!"}
_COLLECTIONS = {f"{_CORE}map", f"{_CORE}seq", "!", None}


class Place(NamedTuple):
    """Where a value stands: line and column, counted from 1, and the places inside it, by key or index."""

    line: int
    column: int
    inner: dict[str, tuple[int, int, Place]] | list[Place] | None = None
    """Of a mapping: for each key its own line and column, and the place of its value."""


class Document(NamedTuple):
    """One document of a text."""

    value: Any
    place: Place


class _Numbers(yaml.constructor.SafeConstructor):
    """Reads numbers as PyYAML does."""

    def read(self, tag: str, text: str) -> int | float:
        node = yaml.ScalarNode(tag, text)
        value: int | float = self.construct_yaml_int(node) if tag.endswith(":int") else self.construct_yaml_float(node)
        return value


_NUMBERS = _Numbers()


class _Open:
    """A collection whose end has not been read."""

    __slots__ = ("anchor", "before", "inner", "key", "key_at", "mark", "merges", "value")

    def __init__(self, value: Any, mark: Any, anchor: str | None, before: int, located: bool) -> None:
        self.value = value
        self.mark = mark
        self.anchor = anchor
        self.before = before
        self.key: str | None = None
        self.key_at = (0, 0)
        self.merges: list[Any] = []
        self.inner: Any = ({} if type(value) is dict else []) if located else None


class _Composer:
    """Composes the values of one text from the parser's events."""

    def __init__(self, text: str, located: bool) -> None:
        self._most = min(MOST_SIZE, MOST_REPEATED + MOST_GROWTH * len(text))
        self._located = located
        self._size = 0
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int, Place]] = {}
        self._root: Document | None = None

    def documents(self, events: Iterator[Any]) -> Iterator[Document]:
        for event in events:
            kind = type(event)
            if kind is yaml.ScalarEvent:
                self._scalar(event)
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                self._begin(event, {} if kind is yaml.MappingStartEvent else [])
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                self._end()
            elif kind is yaml.AliasEvent:
                self._alias(event)
            elif kind is yaml.DocumentStartEvent:
                self._anchors = {}
                self._root = None
            elif kind is yaml.DocumentEndEvent and self._root is not None:
                yield self._root

    def _scalar(self, event: Any) -> None:
        self._grow(VALUE_CHARS + len(event.value), event.start_mark)
        parent = self._open[-1] if self._open else None
        is_key = parent is not None and type(parent.value) is dict and parent.key is None
        value = _scalar(event, is_key)
        if event.anchor is not None:
            size = VALUE_CHARS + len(event.value)
            self._anchors[event.anchor] = (value, size, _place(event.start_mark))
        self._add(value, event.start_mark, None)

    def _begin(self, event: Any, value: Any) -> None:
        if event.tag not in _COLLECTIONS:
            raise syntax_error(event.start_mark, f"the tag {event.tag!r} is not supported", "remove it")
        if len(self._open) >= MAX_NESTING:
            raise syntax_error(event.start_mark, f"invalid YAML: nested too deep, more than {MAX_NESTING} levels", "")
        self._open.append(_Open(value, event.start_mark, event.anchor, self._size, self._located))
        if event.anchor is not None:
            self._anchors.pop(event.anchor, None)
        self._grow(VALUE_CHARS, event.start_mark)

    def _end(self) -> None:
        done = self._open.pop()
        value = done.value
        for other in reversed(done.merges):
            for key in other:
                if key not in value:
                    value[key] = other[key]
        place = _place(done.mark, done.inner)
        if done.anchor is not None:
            self._anchors[done.anchor] = (value, self._size - done.before, place)
        self._add(value, done.mark, place)

    def _alias(self, event: Any) -> None:
        if event.anchor not in self._anchors:
            if any(one.anchor == event.anchor for one in self._open):
                message = f"the alias *{event.anchor} is inside what it names"
                raise syntax_error(event.start_mark, message, "remove it")
            raise syntax_error(event.start_mark, f"invalid YAML: unknown alias *{event.anchor}", "define &it before")
        value, size, place = self._anchors[event.anchor]
        self._grow(size, event.start_mark)
        self._add(value, event.start_mark, place)

    def _grow(self, size: int, mark: Any) -> None:
        self._size += size
        if self._size > self._most:
            raise syntax_error(mark, "the text has too many values", "write fewer, or fewer aliases")

    def _add(self, value: Any, mark: Any, place: Place | None) -> None:
        if not self._open:
            self._root = Document(value, place or _place(mark))
            return
        parent = self._open[-1]
        if type(parent.value) is list:
            parent.value.append(value)
            if self._located:
                parent.inner.append(place or _place(mark))
        elif parent.key is None:
            self._add_key(parent, value, mark)
        else:
            key, parent.key = parent.key, None
            if key == _MERGE:
                parent.merges += _merged(value, mark)
                return
            parent.value[key] = value
            if self._located:
                parent.inner[key] = (*parent.key_at, place or _place(mark))

    def _add_key(self, parent: _Open, key: Any, mark: Any) -> None:
        if not isinstance(key, str):
            shown = "null" if key is None else "a list or mapping" if isinstance(key, list | dict) else repr(key)
            raise syntax_error(mark, f"the key {shown} is not a string", "put it in quotes")
        if key in parent.value:
            raise syntax_error(mark, f"duplicate key {key!r}", "remove one of them")
        parent.key, parent.key_at = key, (mark.line + 1, mark.column + 1)


def _merged(value: Any, mark: Any) -> list[Any]:
    """The mappings that `<<` inserts."""
    found = value if isinstance(value, list) else [value]
    if not all(isinstance(one, dict) for one in found):
        raise syntax_error(mark, "<< needs a mapping or a list of mappings", "for example <<: *defaults")
    return found


def _scalar(event: Any, is_key: bool) -> Any:
    text, tag = event.value, event.tag
    if tag is None:
        if not event.implicit[0]:
            return text
        tag = _resolved(text)
        if is_key and tag == f"{_CORE}bool" and text.lower() in _WORDS:
            return text
        if is_key and tag == _MERGE:
            return _MERGE
    elif tag not in _EXPLICIT:
        raise syntax_error(event.start_mark, f"the tag {tag!r} is not supported", "remove it")
    if tag in (f"{_CORE}int", f"{_CORE}float"):
        if len(text) > MAX_NUMBER_CHARS:  # of 1:1:1…, whose value takes quadratic time, among others
            raise syntax_error(event.start_mark, "the number is too long", "put it in quotes")
        try:
            return _NUMBERS.read(tag, text)
        except (ValueError, OverflowError, IndexError):
            raise syntax_error(event.start_mark, f"{text!r} is not a number", "put it in quotes") from None
    if tag == f"{_CORE}bool":
        return text.lower() in _TRUE
    if tag == f"{_CORE}null":
        return None
    return text


def _resolved(text: str) -> str:
    """The type of a plain scalar."""
    for tag, pattern in _RESOLVERS.get(text[:1], ()):
        if pattern.match(text):
            return tag
    return f"{_CORE}str"


def _place(mark: Any, inner: Any = None) -> Place:
    return Place(mark.line + 1, mark.column + 1, inner)


def documents_in(text: str, *, located: bool = False) -> list[Document]:
    """Return the documents of a text that are not empty; errors name line and column.

    With `located`, each has the places of all its values; without, only its own.
    """
    if len(text) > MOST_BYTES:
        raise Invalid(f"the file has {len(text):,} characters; the limit is {MOST_BYTES:,}", code="not_yaml")
    found: list[Document] = []
    try:
        for document in _Composer(text, located).documents(yaml.parse(text, Loader=_PARSER)):
            if document.value is not None:
                found.append(document)
            if len(found) > MOST_DOCUMENTS:
                raise Invalid(f"the file has more than {MOST_DOCUMENTS:,} documents", code="not_yaml")
    except yaml.MarkedYAMLError as error:
        mark = _inside(text, error.problem_mark or error.context_mark)
        raise syntax_error(mark, f"invalid YAML: {error.problem}", "check the indentation and the quotes") from None
    except yaml.YAMLError as error:
        raise Invalid(f"invalid YAML: {' '.join(str(error).split())}", code="not_yaml") from None
    except (RecursionError, ValueError) as error:  # of the parser in Python, and of texts that are not Unicode
        raise Invalid(f"invalid YAML: {error}", code="not_yaml") from None
    return found


class _Mark(NamedTuple):
    line: int
    column: int


def _inside(text: str, mark: Any) -> Any:
    """The place of an error; of one behind the end of the text, such as a missing bracket, the end of its last line."""
    lines = text.rstrip().splitlines()
    if mark is None or mark.line < len(lines) or not lines:
        return mark
    return _Mark(len(lines) - 1, len(lines[-1]))


def syntax_error(mark: Any, message: str, hint: str) -> Invalid:
    where = f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
    return Invalid(f"{where}: {message}", code="not_yaml", problems=(Problem(where, message, hint),))
