"""Job parameters: declared types, defaults and allowed values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Annotated, Any, Literal

import msgspec

from mainspring.domain.bounds import MAX_ENTRIES, Line, Name
from mainspring.domain.errors import MAX_PROBLEMS, Problem, clipped
from mainspring.domain.secret import NAME, whole_reference
from mainspring.domain.suggestion import closest

MAX_SHOWN = 20
"""How many names or values a message lists, each with at most `MAX_SHOWN_CHARS` characters."""
MAX_SHOWN_CHARS = 100
ParamType = Literal["string", "integer", "number", "boolean", "array", "object"]

_FITS: dict[ParamType, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


class Param(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One parameter. Required without a default; any JSON without a type. `enum` lists the allowed values.

    A `secret` parameter takes a reference such as secret://name, and nothing else; the task gets the value.
    """

    type: ParamType | None = None
    default: Any = msgspec.UNSET
    description: Line = ""
    enum: Annotated[tuple[Any, ...], msgspec.Meta(max_length=1000)] = ()
    secret: bool = False


Params = Annotated[dict[Name, Param], msgspec.Meta(max_length=MAX_ENTRIES)]


def declaration_problems(params: Mapping[str, Param], needed: frozenset[str], *, scheduled: bool) -> list[Problem]:
    """Return the problems of declared parameters. Scheduled fires pass none, so each then needs a default."""
    found = []
    for name, param in params.items():
        if not name.isidentifier():
            found.append(Problem(f"/params/{name}", f"{name!r} is not a name", "letters, digits, '_'"))
        elif wrong := [value for value in param.enum if not _has_type(param, value)]:
            found.append(Problem(f"/params/{name}/enum", _misfit(name, param, wrong[0]), "change one of them"))
        elif param.default is not msgspec.UNSET and not _fits(param, param.default):
            found.append(Problem(f"/params/{name}/default", _misfit(name, param, param.default), "change one of them"))
        elif param.secret and (param.type not in (None, "string") or param.enum):
            found.append(Problem(f"/params/{name}", "a secret parameter is a string without enum", "leave them out"))
    if scheduled:
        for name in sorted(needed | params.keys()):
            if name not in params or params[name].default is msgspec.UNSET:
                found.append(
                    Problem(
                        f"/params/{name}",
                        f"a schedule gives no parameters, and {name!r} has no default",
                        f'add "params": {{"{name}": {{"default": …}}}}',
                    )
                )
    return found


def given_problems(
    params: Mapping[str, Param], needed: frozenset[str], given: Mapping[str, Any], also: frozenset[str] = frozenset()
) -> list[Problem]:
    """Return the problems of the parameters of one execution. `also` lists additional optional names."""
    return list(islice(_given_problems(params, needed, given, also), MAX_PROBLEMS))


def _given_problems(
    params: Mapping[str, Param], needed: frozenset[str], given: Mapping[str, Any], also: frozenset[str]
) -> Iterator[Problem]:
    known = params.keys() | needed | also
    for name, value in given.items():
        if name in params and not _fits(params[name], value):
            yield Problem(f"/params/{name}", _misfit(name, params[name], value), "give a value of that type")
        elif params and name not in known:
            close = closest(name, known)
            hint = f"did you mean {close!r}?" if close else f"known: {', '.join(sorted(known)[:MAX_SHOWN])}"
            yield Problem(f"/params/{name}", f"unknown parameter {name!r}", hint)
    for name in sorted(needed | params.keys()):
        if name not in given and (name not in params or params[name].default is msgspec.UNSET):
            yield Problem(
                f"/params/{name}", f"the parameter {name!r} is required", "pass a value, or declare a default"
            )


def defaults(params: Mapping[str, Param]) -> dict[str, Any]:
    return {name: param.default for name, param in params.items() if param.default is not msgspec.UNSET}


def _fits(param: Param, value: Any) -> bool:
    return _has_type(param, value) and (not param.enum or _is_one_of(param, value))


def _is_one_of(param: Param, value: Any) -> bool:
    return any(value == known and isinstance(value, bool) == isinstance(known, bool) for known in param.enum)


def _has_type(param: Param, value: Any) -> bool:
    if param.secret:
        return isinstance(value, str) and NAME.match(whole_reference(value) or "") is not None
    if param.type is None:
        return True
    if isinstance(value, bool):
        return param.type == "boolean"
    if param.type == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _FITS[param.type])


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return clipped(msgspec.json.encode(value).decode(), MAX_SHOWN_CHARS)


def _misfit(name: str, param: Param, value: Any) -> str:
    if param.secret:
        return f"the parameter {name!r} takes a reference to a secret, such as secret://name"
    if _has_type(param, value):
        known = ", ".join(_shown(one) for one in param.enum[:MAX_SHOWN])
        return f"the parameter {name!r} is one of {known}, and {_shown(value)} was given"
    kind = "null" if value is None else type(value).__name__
    words = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array", "dict": "object"}
    article = "an" if str(param.type)[0] in "aio" else "a"
    return f"the parameter {name!r} is {article} {param.type}, and {words.get(kind, kind)} was given"
