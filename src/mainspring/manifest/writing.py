"""Write definitions as YAML manifests; fields with their defaults are omitted."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import msgspec
import yaml

from mainspring.domain.workflow.spec import WorkflowSpec
from mainspring.manifest.needs import shortened_needs
from mainspring.manifest.short_forms import abbreviated

_DUMPER: Any = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper


class _Dumper(_DUMPER):  # type: ignore[misc]
    """Writes repeated values in full: aliases are hard to read and to edit."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def write_job(given: dict[str, Any]) -> str:
    """Return a job as YAML with the fields in `given`; omitted fields have their defaults."""
    values = dict(given)
    metadata = {"name": values.pop("name"), **values.pop("metadata", {})}
    return write_document({"kind": "Job", "metadata": metadata, "spec": values})


def write_workflow(spec: WorkflowSpec) -> str:
    """Return a workflow as YAML; omitted fields have their defaults."""
    values = without_defaults(spec)
    name, metadata = values.pop("name"), values.pop("metadata", None)
    return write_document(
        {"kind": "Workflow", "metadata": {"name": name, **(metadata or {})}, "spec": shortened(values)}
    )


def write_documents(documents: Iterable[dict[str, Any]]) -> str:
    """Return manifests as one text, separated by `---`."""
    return "---\n".join(write_document(document) for document in documents)


def write_document(document: dict[str, Any]) -> str:
    plain = msgspec.json.decode(msgspec.json.encode(document))
    text: str = yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


def shortened(values: dict[str, Any]) -> dict[str, Any]:
    """Use the short forms of tasks and dependencies, in a job or in the steps of a workflow."""
    if isinstance(steps := values.get("steps"), dict):
        return {**values, "steps": {name: abbreviated(step) for name, step in steps.items()}}
    return abbreviated(shortened_needs(values))


def without_defaults(value: Any) -> Any:
    """Return a definition as plain values without the fields that have their defaults, at every depth."""
    return _plain(value, omit=True)


def with_defaults(value: Any) -> Any:
    """Return a definition as plain values with all fields, at every depth."""
    return _plain(value, omit=False)


_SCALARS = frozenset((str, int, float, bool, type(None)))


def _plain(value: Any, *, omit: bool) -> Any:
    if type(value) in _SCALARS:
        return value
    if isinstance(value, msgspec.Struct):
        found: dict[str, Any] = {}
        config = value.__struct_config__
        if config.tag is not None:
            found[str(config.tag_field)] = config.tag
        for name, encoded, default in _fields(type(value)):
            inner = getattr(value, name)
            if omit and inner == default and type(inner) is type(default):
                continue
            found[encoded] = inner if type(inner) in _SCALARS else _plain(inner, omit=omit)
        return found
    if isinstance(value, list | tuple):
        return [_plain(item, omit=omit) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item, omit=omit) for key, item in value.items()}
    return msgspec.to_builtins(value)


@functools.cache
def defaults_of(type_: type[msgspec.Struct]) -> dict[str, Any]:
    """The fields of a definition that have defaults, with those of the values inside."""
    return {name: with_defaults(default) for _, name, default in _fields(type_) if default is not msgspec.NODEFAULT}


@functools.cache
def _fields(type_: type[msgspec.Struct]) -> list[tuple[str, str, Any]]:
    """Name, encoded name and default of each field."""
    return [
        (f.name, f.encode_name, f.default if f.default_factory is msgspec.NODEFAULT else f.default_factory())
        for f in msgspec.structs.fields(type_)
    ]
