"""Finds the function of a call, checks its arguments and converts them to the annotated types."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import typing
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from mainspring.domain.suggestion import closest
from mainspring.sdk.job import declared
from mainspring.sdk.parameters import from_json, hints_of, is_convertible

_JSON_TYPES = (str, int, float, bool, list, dict, type(None), Any, object, inspect.Parameter.empty)


class NotCallable(Exception):
    """The call can't be made; a retry can't change that, unless `retry`."""

    def __init__(self, message: str, *, retry: bool = False) -> None:
        super().__init__(message)
        self.retry = retry


class Function:
    """A function that is called by name, with JSON arguments."""

    def __init__(self, name: str, target: Callable[..., Any]) -> None:
        self.name = name
        self.call: Callable[..., Any] = _construct_and_call(target) if inspect.isclass(target) else target
        self.is_async = inspect.iscoroutinefunction(target.__call__ if inspect.isclass(target) else target)
        parameters = _signature(target)
        self.accepted = parameters.keys()
        self.takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        self.required = {n for n, p in parameters.items() if p.default is p.empty and p.kind not in _VARIADIC}
        self._types = _types(target, parameters)

    def arguments(self, args: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments, converted to their types; raise `NotCallable` if they do not match."""
        if not args and not self.required:
            return args
        if not self.required <= args.keys() or (not self.takes_any and not args.keys() <= self.accepted):
            raise NotCallable(self._mismatch(args))
        for name, hint in self._types.items():
            if name in args:
                try:
                    args[name] = from_json(args[name], hint)
                except ValueError as error:
                    raise NotCallable(f"{self.name}: invalid argument {name!r}: {error}") from None
        return args

    def _mismatch(self, args: dict[str, Any]) -> str:
        takes = ", ".join(self.accepted) or "none"
        missing = sorted(self.required - args.keys())
        if missing:
            return f"{self.name}: missing argument {missing[0]!r}; it takes {takes}"
        unknown = sorted(args.keys() - self.accepted)[0]
        close = closest(unknown, self.accepted)
        hint = f"did you mean {close!r}?" if close else f"it takes {takes}"
        return f"{self.name} takes no argument {unknown!r}; {hint}"


class Functions:
    """The functions of the loaded modules: declared jobs by their name, all public functions as `module:name`."""

    def __init__(self, modules: Sequence[ModuleType]) -> None:
        self._modules = [module.__name__ for module in modules]
        self._known: dict[str, Function] = {}
        for name in declared:  # now, so that first calls are as quick as others
            with contextlib.suppress(Exception):  # reported by its calls
                self.find(name)

    def find(self, name: str) -> Function:
        if (found := self._known.get(name)) is None:
            found = self._known[name] = self._find(name)
        return found

    def names(self) -> list[str]:
        """Return the names of all functions, declared jobs first."""
        found = [declaration.name for declaration, _ in declared.values()]
        for name in self._modules:
            module = importlib.import_module(name)
            found += [
                f"{name}:{member}"
                for member, value in vars(module).items()
                if inspect.isfunction(value) and value.__module__ == name and not member.startswith("_")
            ]
        return found

    def _find(self, name: str) -> Function:
        module, colon, member = name.partition(":")
        if not colon:
            if name in declared:
                return Function(name, declared[name][1])
            raise self._missing(name)
        for declaration, function in declared.values():  # also in a module that a loaded one imports
            if declaration.spec["task"]["function"] == name:
                return Function(name, function)
        # Only modules that the worker was started with: no job may call "os:system".
        if not any(module == known or module.startswith(known + ".") for known in self._modules):
            raise self._missing(name)
        try:
            target = getattr(importlib.import_module(module), member, None)
        except ImportError:
            target = None
        if not callable(target) or member.startswith("_"):
            raise self._missing(name)
        return Function(name, target)

    def _missing(self, name: str) -> NotCallable:
        known = self.names()
        close = closest(name, known, cutoff=0.7)
        shown = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
        hint = f"did you mean {close!r}? " if close else ""
        available = f"it has {shown}" if known else "it has none"
        # Another worker, or this one after a deploy, may have it.
        return NotCallable(f"unknown function {name!r} on this worker; {hint}{available}", retry=True)


_VARIADIC = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def _construct_and_call(factory: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that constructs an object with the arguments, then calls it."""
    return lambda **args: factory(**args)()


def _signature(target: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    try:
        found = inspect.signature(target).parameters
    except (ValueError, TypeError):
        return {"": inspect.Parameter("args", inspect.Parameter.VAR_KEYWORD)}
    return dict(found)


def _has_objects(hint: Any) -> bool:
    """Whether values of this type are not all plain JSON: a date, `list[Order]`, but not `list[str]`."""
    if typing.get_origin(hint) in (list, dict):
        return any(_has_objects(argument) for argument in typing.get_args(hint))
    return hint not in _JSON_TYPES


def _types(target: Callable[..., Any], parameters: dict[str, inspect.Parameter]) -> dict[str, Any]:
    """Return the annotations to convert JSON values to: dates, dataclasses, UUIDs, ..."""
    try:
        hints = hints_of(target)
    except Exception:
        return {}
    found = {}
    for name in parameters:
        hint = hints.get(name, Any)
        if _has_objects(hint) and is_convertible(hint):
            found[name] = hint
    return found
