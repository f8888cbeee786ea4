"""Parameters of declared functions and classes: what templates fill in, and what submissions give as JSON."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from datetime import date
from typing import Annotated, Any

_FIRE_DATE = "mainspring: the day of the fire"
FireDate = Annotated[date, _FIRE_DATE]
"""A parameter that receives the day of the fire, in the schedule's time zone, as a plain `date`."""

_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}
_INSTEAD = "use a dataclass, a msgspec.Struct, a pydantic model or JSON types, or take a dict and convert it inside"


def parameters_of(target: Callable[..., Any]) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """Return the arguments that templates fill in, and the parameters of the job."""
    hints = _resolved_hints(target)
    args: dict[str, str] = {}
    params: dict[str, dict[str, Any]] = {}
    for name, parameter in inspect.signature(target).parameters.items():
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ValueError(
                f"{target.__name__}: the parameter {name!r} is positional-only; jobs are called by name: remove the '/'"
            )
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if is_fire_date(hints.get(name)):
            args[name] = "{{execution_date}}"
        else:
            params[name] = declared_param(target, name, hints.get(name), parameter.default)
    return args, params


def hints_of(target: Callable[..., Any], *, extras: bool = False) -> dict[str, Any]:
    """Return the annotations of a function, or of what a class is constructed with; `extras` keeps `Annotated`."""
    if inspect.isclass(target) and not is_dataclass(target) and not hasattr(target, "__struct_fields__"):
        return typing.get_type_hints(target.__init__, include_extras=extras)
    return typing.get_type_hints(target, include_extras=extras)


def is_fire_date(hint: Any) -> bool:
    return _FIRE_DATE in getattr(hint, "__metadata__", ())


def declared_param(target: Callable[..., Any], name: str, hint: Any, default: Any) -> dict[str, Any]:
    """Return a parameter as the API declares it. Refuses one whose values cannot come from JSON."""
    kind = _kind(hint)
    if default is inspect.Parameter.empty:
        _refuse_unless_convertible(target, name, hint)
        return {"type": kind} if kind else {}
    try:
        as_json = to_json(default)
    except TypeError:
        raise TypeError(
            f"{target.__name__}: the default of the parameter {name!r} is a {type(default).__name__}, "
            f"which is not JSON; {_INSTEAD}"
        ) from None
    # A default of another type, such as None for a string, overrides the annotation.
    matches = kind is not None and _TYPES.get(type(as_json)) == kind
    return ({"type": kind} if matches else {}) | {"default": as_json}


def params_to_json(call: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the parameters of a submission as plain JSON values; None if there are none."""
    from mainspring.domain.errors import invalid

    found = {}
    for name, value in params.items():
        try:
            found[name] = to_json(value)
        except (TypeError, ValueError) as error:
            raise invalid(
                f"/params/{name}",
                f"{call}: the parameter {name!r} is a {type(value).__name__}, which is not JSON: {error}",
                hint="pass numbers, text, lists, dictionaries, dates, dataclasses or None",
            ) from None
    return found or None


def to_json(value: Any) -> Any:
    """Return a value as JSON types. Models, such as those of pydantic, dump themselves."""
    import msgspec

    return msgspec.to_builtins(value, str_keys=True, enc_hook=_dump_model)


def from_json(value: Any, hint: Any) -> Any:
    """Convert JSON to an annotated type; raises `ValueError`, of which `msgspec.ValidationError` is one."""
    import msgspec

    return msgspec.convert(value, hint, dec_hook=_validate_model)


def is_convertible(hint: Any) -> bool:
    """Whether `from_json` can make values of this type."""
    import msgspec

    try:
        msgspec.json.schema(hint, schema_hook=_model_schema)
    except Exception:  # TypeError, and whatever custom types raise
        return False
    return True


def _dump_model(value: Any) -> Any:
    if _is_model(type(value)):
        return value.model_dump(mode="json")
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def _validate_model(type_: Any, value: Any) -> Any:
    if _is_model(type_):
        return type_.model_validate(value)
    raise TypeError(f"{type_} cannot be made from JSON")


def _model_schema(type_: Any) -> dict[str, Any]:
    if _is_model(type_):
        return {"type": "object"}
    raise TypeError(f"{type_} has no JSON form")


def _is_model(type_: Any) -> bool:
    """Whether a class is a model of pydantic, or has its two methods."""
    return inspect.isclass(type_) and hasattr(type_, "model_validate") and hasattr(type_, "model_dump")


def _resolved_hints(target: Callable[..., Any]) -> dict[str, Any]:
    try:
        return hints_of(target, extras=True)
    except NameError as error:
        raise TypeError(
            f"{target.__name__}: an annotation refers to {error.name!r}, which is not defined here; "
            "import it at run time (not under TYPE_CHECKING), and define it above the job"
        ) from None


def _kind(hint: Any) -> str | None:
    if typing.get_origin(hint) is Annotated:
        hint = hint.__origin__
    plain = typing.get_origin(hint) or hint
    if inspect.isclass(plain):
        if is_dataclass(plain) or typing.is_typeddict(plain) or _is_model(plain):
            return "object"
        config = getattr(plain, "__struct_config__", None)
        if config is not None and not config.array_like:
            return "object"
    return next((kind for known, kind in _TYPES.items() if plain is known), None)


def _refuse_unless_convertible(target: Callable[..., Any], name: str, hint: Any) -> None:
    if hint is None or not _may_be_a_class(hint) or is_convertible(hint):
        return
    shown = hint.__name__ if inspect.isclass(hint) else str(hint)
    raise TypeError(
        f"{target.__name__}: the parameter {name!r} has the type {shown}, which cannot be made from JSON; {_INSTEAD}"
    )


def _may_be_a_class(hint: Any) -> bool:
    """Whether an annotation may name a class of the user; without one, msgspec need not be imported."""
    return hint not in (Any, object, str, int, float, bool, list, dict, tuple, set, bytes)
