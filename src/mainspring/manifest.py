"""YAML manifests of jobs and workflows: strict reading with line and column, lossless writing."""

from __future__ import annotations

import difflib
from typing import Any, TypeVar

import msgspec
import yaml

from mainspring.codec import problem_of
from mainspring.domain.errors import Invalid, Problem
from mainspring.domain.job import JobSpec
from mainspring.domain.workflow.spec import Step, WorkflowSpec

T = TypeVar("T")

MOST_BYTES = 16_000_000
_SHORT = {
    "shell": 'write its words as a list: [sh, -c, "echo hi | wc"]',
    "http": 'write {url: "https://…", method: POST}',
    "python": 'write the name of the function: "app.etl:extract"',
}
"""Short forms of tasks, with a hint on how to write each."""
_FIELDS = frozenset(Step.__struct_fields__)
_KINDS = {str: "a string", list: "a list", dict: "a mapping", int: "a number", float: "a number", type(None): "empty"}


class _Loader(yaml.SafeLoader):
    """The safe loader, which also rejects duplicate keys and keys that are not strings."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise _syntax_error(key_node.start_mark, f"the key {key!r} is not a string", "put it in quotes")
            if key in seen:
                raise _syntax_error(key_node.start_mark, f"duplicate key {key!r}", "remove one of them")
            seen.add(key)
        return super().construct_mapping(node, deep)


# Instants stay strings: the server reads them in the time zone of their schedule.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_workflows(text: str) -> list[WorkflowSpec]:
    """Return every workflow of a file, one per document."""
    return [_workflow(document) for document in read_documents(text)]


def read_job(text: str) -> JobSpec:
    """Return the single job of a text: `kind: Job` with metadata and spec, or the bare definition."""
    documents = read_documents(text)
    if len(documents) != 1:
        raise _invalid("", f"expected one document, got {len(documents)}", "write one job")
    document = documents[0]
    if not isinstance(document, dict):
        raise _invalid("", "a job must be a mapping", "kind: Job, metadata: {name: …}, spec: {task: …}")
    return _converted(_flat(document, "Job"), JobSpec)


def write_job(given: dict[str, Any]) -> str:
    """Return a job as YAML with the fields in `given`; omitted fields have their defaults."""
    values = dict(given)
    metadata = {"name": values.pop("name"), **values.pop("metadata", {})}
    document = {"kind": "Job", "metadata": metadata, "spec": msgspec.json.decode(msgspec.json.encode(values))}
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)


def read_documents(text: str) -> list[Any]:
    """Return the documents of a text; errors name line and column."""
    if len(text) > MOST_BYTES:
        raise Invalid(f"the file has {len(text):,} characters; the limit is {MOST_BYTES:,}")
    try:
        documents = [d for d in yaml.load_all(text, _Loader) if d is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _syntax_error(mark, f"invalid YAML: {error.problem}", "check the indentation and the quotes") from None
    except yaml.YAMLError as error:
        raise Invalid(f"invalid YAML: {error}", code="not_yaml") from None
    if not documents:
        raise Invalid("the file is empty", problems=(Problem("", "the file is empty", "write a workflow"),))
    return documents


def write_workflow(spec: WorkflowSpec) -> str:
    """Return a workflow as YAML; omitted fields have their defaults."""
    values = msgspec.to_builtins(spec)
    name, metadata = values.pop("name"), values.pop("metadata", None)
    values["steps"] = {n: _abbreviated(step) for n, step in values["steps"].items()}
    document = {"kind": "Workflow", "metadata": {"name": name, **(metadata or {})}, "spec": values}
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)


def _workflow(document: Any) -> WorkflowSpec:
    if not isinstance(document, dict):
        raise _invalid("", "a workflow must be a mapping", "kind: Workflow, metadata: {name: …}, spec: {steps: …}")
    values = _flat(document, "Workflow")
    if isinstance(values.get("steps"), dict):
        values["steps"] = {name: _expanded(f"/steps/{name}", step) for name, step in values["steps"].items()}
    return _converted(values, WorkflowSpec)


def _flat(document: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the fields of a manifest without its kind, metadata and spec."""
    values = dict(document)
    if "kind" not in values and "spec" not in values:
        return values
    if values.get("kind") != kind:
        raise _invalid("/kind", f"unexpected kind {values.get('kind')!r}", f"use kind: {kind}")
    metadata, inner = values.get("metadata"), values.get("spec")
    if not isinstance(metadata, dict) or not isinstance(inner, dict):
        raise _invalid("/metadata", "a manifest needs metadata with a name, and a spec", "metadata: {name: nightly}")
    more = {key: value for key, value in metadata.items() if key != "name"}
    return {"name": metadata.get("name"), **({"metadata": more} if more else {}), **inner}


def _converted(values: dict[str, Any], type_: type[T]) -> T:
    try:
        return msgspec.convert(values, type_)
    except msgspec.ValidationError as error:
        problem = problem_of(str(error), type_, values)
        raise Invalid(problem.message, problems=(problem,)) from None


def _expanded(at: str, step: Any) -> Any:
    """Expand a short form such as `shell: [echo, hi]` to a task of that kind."""
    if not isinstance(step, dict):
        return step
    if not (short := [kind for kind in _SHORT if kind in step]):
        for field in step.keys() - _FIELDS:
            if close := difflib.get_close_matches(field, _SHORT, n=1):
                raise _invalid(f"{at}/{field}", f"unknown field {field!r}", f"did you mean {close[0]!r}?")
        return step
    kind, value = short[0], step[short[0]]
    rest = {key: item for key, item in step.items() if key != kind}
    if kind == "http" and isinstance(value, dict):
        return {"task": {"kind": kind, **value}, **rest}
    if kind == "shell" and isinstance(value, list):
        return {"task": {"kind": kind, "argv": value}, **rest}
    if kind == "python" and isinstance(value, str):
        args = rest.pop("args", None)
        return {"task": {"kind": kind, "function": value, **({"args": args} if args else {})}, **rest}
    raise _invalid(f"{at}/{kind}", f"{kind} cannot be {_KINDS.get(type(value), 'a value of this type')}", _SHORT[kind])


def _abbreviated(step: dict[str, Any]) -> dict[str, Any]:
    task = step.get("task")
    if task is None:
        return step
    rest = {key: value for key, value in step.items() if key != "task"}
    plain = {key: value for key, value in task.items() if value not in (None, False, {}, [])}
    if task["kind"] == "shell" and plain.keys() == {"kind", "argv"}:
        return {"shell": task["argv"], **rest}
    if task["kind"] == "python":
        return {"python": task["function"], **({"args": task["args"]} if task.get("args") else {}), **rest}
    return {"task": plain, **rest}


def _syntax_error(mark: Any, message: str, hint: str) -> Invalid:
    where = f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
    return Invalid(f"{where}: {message}", code="not_yaml", problems=(Problem(where, message, hint),))


def _invalid(pointer: str, message: str, hint: str) -> Invalid:
    return Invalid(message, problems=(Problem(pointer, message, hint),))
