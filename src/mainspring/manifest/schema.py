"""JSON Schema of manifests, for editors."""

from __future__ import annotations

from typing import Any

import msgspec

from mainspring.domain.bounds import MAX_ENTRIES
from mainspring.manifest.kinds import KINDS, STORED, Kind
from mainspring.manifest.short_forms import SHORT_FORMS

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NAME = {"type": "string", "minLength": 1, "maxLength": 128}
_METADATA = {
    "labels": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Labels to find it by."},
    "owner": {"type": "string", "description": "Who is responsible for it; part of its notifications."},
    "runbook": {"type": "string", "description": "A link to instructions for failures; part of its notifications."},
}


def schema() -> dict[str, Any]:
    """Return the JSON Schema of one manifest; a YAML file may have several, separated by `---`."""
    types = [kind.type for kind in KINDS.values()]
    found, definitions = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    specs = dict(zip(KINDS, found, strict=True))
    definitions["Step"] = _with_short_forms(definitions["Step"], definitions)
    kinds = {}
    for name, kind in KINDS.items():
        reference = specs[name]["$ref"].rpartition("/")[2]
        kinds[name] = _manifest(kind, _spec(kind, definitions[reference], definitions))
    return {
        "$schema": DIALECT,
        "title": "Mainspring manifest",
        "description": f"A secret of a channel may be {STORED}: the one that the server has.",
        "type": "object",
        "required": ["kind", "metadata"],
        "properties": {"kind": {"enum": list(KINDS)}},
        "allOf": [
            {"if": {"properties": {"kind": {"const": name}}, "required": ["kind"]}, "then": body}
            for name, body in kinds.items()
        ],
        "$defs": dict(sorted(definitions.items())),
    }


def _manifest(kind: Kind, spec: dict[str, Any]) -> dict[str, Any]:
    metadata: dict[str, Any] = {"type": "object", "required": ["name"], "properties": {"name": _NAME}}
    if kind.has_metadata:
        metadata["properties"] |= _METADATA
    else:
        metadata["additionalProperties"] = False
    return {
        "properties": {
            "kind": {"const": kind.name},
            "apiVersion": {"type": "string"},
            "metadata": metadata,
            "spec": spec,
        },
        "additionalProperties": False,
    }


def _spec(kind: Kind, definition: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The fields of a definition without those that metadata has."""
    inner = {k: v for k, v in definition["properties"].items() if k not in ("name", "metadata")}
    required = [name for name in definition.get("required", []) if name != "name"]
    spec = {**definition, "properties": inner, "required": required}
    if kind.name != "Job":
        return spec
    names = {"type": "array", "items": _NAME, "maxItems": MAX_ENTRIES, "uniqueItems": True}
    inner["needs"] = {"anyOf": [names, inner["needs"]], "description": "Jobs that must have succeeded."}
    return _with_short_forms(spec, definitions)


def _with_short_forms(definition: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Add `shell`, `http`, `python` and `container`; then `task` is not required."""
    argv = definitions["ShellTask"]["properties"]["argv"]
    args = definitions["PythonTask"]["properties"]["args"]
    short: dict[str, Any] = {
        "shell": argv,
        "http": _untagged(definitions["HttpTask"]),
        "python": {"type": "string"},
        "args": {**args, "description": "Arguments of a python function."},
        "container": _untagged(definitions["ContainerTask"]),
    }
    assert set(short) - {"args"} == set(SHORT_FORMS)
    required = [name for name in definition.get("required", []) if name != "task"]
    return {**definition, "properties": {**definition["properties"], **short}, "required": required}


def _untagged(definition: dict[str, Any]) -> dict[str, Any]:
    """A task without its kind, which the short form's name says."""
    inner = {name: value for name, value in definition["properties"].items() if name != "kind"}
    required = [name for name in definition.get("required", []) if name != "kind"]
    return {**definition, "properties": inner, "required": required}
