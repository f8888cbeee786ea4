"""Read manifests: strict, with all problems at once, each with a JSON pointer into the document."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec

from mainspring.codec import problem_of
from mainspring.domain.errors import Invalid, Problem
from mainspring.domain.job import JobSpec
from mainspring.domain.suggestion import closest
from mainspring.domain.workflow.spec import WorkflowSpec
from mainspring.manifest.kinds import JOB_FIELDS, KINDS, STEP_FIELDS, Kind
from mainspring.manifest.needs import expanded_needs
from mainspring.manifest.short_forms import expanded
from mainspring.manifest.yaml_text import documents_in

T = TypeVar("T")
MAX_NAME_CHARS = 128


@dataclass(frozen=True, slots=True)
class Manifest:
    """One manifest: kind, name, and the fields that it sets, without the name and with tasks in their long form."""

    kind: str
    name: str
    given: dict[str, Any]

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.name


def read_documents(text: str) -> list[Any]:
    """Return the documents of a text; errors name line and column."""
    documents = [document.value for document in documents_in(text)]
    if not documents:
        raise Invalid("the file is empty", problems=(Problem("", "the file is empty", "write a workflow"),))
    return documents


def read_workflows(text: str) -> list[WorkflowSpec]:
    """Return every workflow of a file, one per document."""
    return workflows_in(read_documents(text))


def workflows_in(documents: list[Any]) -> list[WorkflowSpec]:
    """Return the workflows of parsed documents; each may also be the bare definition."""
    return [_definition(document, "Workflow", WorkflowSpec) for document in documents]


def read_job(text: str) -> JobSpec:
    """Return the single job of a text: `kind: Job` with metadata and spec, or the bare definition."""
    return job_in(read_documents(text))


def job_in(documents: list[Any]) -> JobSpec:
    """Return the single job of parsed documents."""
    if len(documents) != 1:
        raise _invalid("", f"expected one document, got {len(documents)}", "write one job")
    return _definition(documents[0], "Job", JobSpec)


def manifest_in(document: Any) -> Manifest:
    """Return the manifest of a document; raise Invalid with every problem of its shape."""
    kind, name, given = _parts(document)
    try:
        given = _long_forms(kind.name, given)
    except Invalid as error:
        raise _in_document(error) from None
    problems = list(shape_problems(_with_name(kind, name, given), kind.type))
    if problems:
        raise _in_document(Invalid(problems[0].message, problems=tuple(problems)))
    return Manifest(kind.name, name, given)


def typed(manifest: Manifest) -> Any:
    """Return the definition of a manifest as the type of its kind."""
    kind = KINDS[manifest.kind]
    return msgspec.convert(_with_name(kind, manifest.name, manifest.given), kind.type)


def check(manifest: Manifest) -> Any:
    """Return the definition; raise Invalid with every problem that can be found without a server."""
    definition = typed(manifest)
    problems = KINDS[manifest.kind].problems(manifest.name, definition)
    if problems:
        raise _in_document(Invalid(problems[0].message, problems=tuple(problems)))
    return definition


def in_document(problem: Problem) -> Problem:
    """Point into the manifest instead of its definition."""
    pointer = problem.pointer
    if pointer.startswith(("/metadata", "/kind")):
        return problem
    if pointer in ("", "/"):
        return Problem("/spec", problem.message, problem.hint)
    return Problem(f"/metadata{pointer}" if pointer == "/name" else f"/spec{pointer}", problem.message, problem.hint)


def shape_problems(values: Any, type_: Any) -> Iterator[Problem]:
    """Every problem of a value's shape; msgspec alone names only the first."""
    try:
        msgspec.convert(values, type_)
        return
    except msgspec.ValidationError as error:
        first = problem_of(str(error), type_, values)
    found = list(_field_problems(values, type_))
    yield from found or [first]


def _field_problems(values: Any, type_: Any) -> Iterator[Problem]:
    if not isinstance(values, dict) or not _is_struct(type_):
        return
    fields = _fields(type_)
    for name in values:
        if name not in fields:
            yield problem_of(f"Object contains unknown field `{name}`", type_, values)
    for name, field in fields.items():
        if name not in values:
            if field.required:
                yield problem_of(f"Object missing required field `{name}`", type_, values)
            continue
        entries = _entry_type(field.type)
        found = list(_entry_problems(values[name], entries)) if entries is not None else []
        for problem in found or _value_problems(values[name], field.type):
            yield _below(f"/{name}", problem)
        if not found and not _is_struct(field.type):
            yield from _plain_problem(name, values, field.type, type_)


def _value_problems(value: Any, type_: Any) -> Iterator[Problem]:
    """The problems inside a struct; those of other types need the name of their field."""
    return shape_problems(value, type_) if _is_struct(type_) else iter(())


def _plain_problem(name: str, values: dict[str, Any], type_: Any, parent: Any) -> Iterator[Problem]:
    """The problem of a field that is no struct: known words and fields are found by its place in the parent."""
    try:
        msgspec.convert(values[name], type_)
    except msgspec.ValidationError as error:
        text, found, place = str(error).rpartition(" - at `$")
        message = f"{text} - at `$.{name}{place}" if found else f"{error} - at `$.{name}`"
        yield problem_of(message, parent, values)


def _is_struct(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)


def _entry_problems(entries: Any, type_: Any) -> Iterator[Problem]:
    """The problems of each entry of a mapping of structs."""
    if isinstance(entries, dict):
        for key, entry in entries.items():
            for problem in shape_problems(entry, type_):
                yield _below(f"/{key}", problem)


def _entry_type(type_: Any) -> Any:
    """The type of the entries of a mapping of structs; None for other types."""
    bare = get_args(type_)[0] if get_origin(type_) is Annotated else type_
    if get_origin(bare) is dict:
        entry = get_args(bare)[1]
        return entry if _is_struct(entry) else None
    return None


@functools.cache
def _fields(type_: type[msgspec.Struct]) -> dict[str, Any]:
    return {f.encode_name: f for f in msgspec.structs.fields(type_)}


def _below(place: str, problem: Problem) -> Problem:
    pointer = "" if problem.pointer == "/" else problem.pointer
    return Problem(f"{place}{pointer}", problem.message, problem.hint)


def _parts(document: Any) -> tuple[Kind, str, dict[str, Any]]:
    """Kind, name and fields of a document; problems of its frame."""
    if not isinstance(document, dict):
        raise _invalid("", "a manifest must be a mapping", "kind: Job, metadata: {name: …}, spec: {…}")
    problems = []
    kind = KINDS.get(document["kind"]) if isinstance(document.get("kind"), str) else None
    if kind is None:
        shown = document.get("kind")
        close = closest(str(shown), KINDS, cutoff=0.5)
        message = "kind is missing" if shown is None else f"unknown kind {str(shown)[:100]!r}"
        hint = f"did you mean {close}?" if close and shown is not None else f"one of {', '.join(KINDS)}"
        problems.append(Problem("/kind", message, hint))
    for name in document.keys() - {"kind", "metadata", "spec", "apiVersion"}:
        problems.append(Problem(f"/{name}", f"unknown field {name!r}", "a manifest has kind, metadata and spec"))
    metadata, spec = document.get("metadata"), document.get("spec", {})
    if spec is None:
        spec = {}
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        problems.append(Problem("/metadata", "metadata with a name is missing", "metadata: {name: nightly}"))
        metadata = {"name": ""}
    elif len(metadata["name"]) > MAX_NAME_CHARS:
        problems.append(Problem("/metadata/name", f"a name has at most {MAX_NAME_CHARS} characters", "shorten it"))
    if not isinstance(spec, dict):
        problems.append(Problem("/spec", "spec must be a mapping", "spec: {…}"))
        spec = {}
    for name in ("name", "metadata"):
        if name in spec:
            problems.append(Problem(f"/spec/{name}", f"{name} does not belong in spec", "write it in metadata"))
    more = {key: value for key, value in metadata.items() if key != "name"}
    if more and kind is not None and not kind.has_metadata:
        for key in more:
            problems.append(Problem(f"/metadata/{key}", f"a {kind.name} has no {key}", "remove it; it has only a name"))
    if problems or kind is None:
        raise Invalid(problems[0].message, problems=tuple(problems))
    return kind, metadata["name"], {**({"metadata": more} if more else {}), **spec}


def _with_name(kind: Kind, name: str, given: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, **given} if kind.has_name else given


def _long_forms(kind: str, given: dict[str, Any]) -> dict[str, Any]:
    if kind == "Job":
        long: dict[str, Any] = expanded("", expanded_needs(given), JOB_FIELDS)
        return long
    if kind == "Workflow" and isinstance(given.get("steps"), dict):
        steps: dict[str, Any] = {}
        problems: list[Problem] = []
        for name, step in given["steps"].items():
            try:
                steps[name] = expanded(f"/steps/{name}", step, STEP_FIELDS)
            except Invalid as error:
                problems += error.problems
        if problems:
            raise Invalid(problems[0].message, problems=tuple(problems))
        return {**given, "steps": steps}
    return given


def _definition(document: Any, kind: str, type_: type[T]) -> T:
    """The definition of a document: a manifest of this kind, or the bare fields."""
    if not isinstance(document, dict):
        example = "spec: {task: …}" if kind == "Job" else "spec: {steps: …}"
        message = f"a {kind.lower()} must be a mapping"
        raise _invalid("", message, f"kind: {kind}, metadata: {{name: …}}, {example}")
    values = _long_forms(kind, _flat(document, kind))
    if kind == "Job" and "needs" in values:
        hint = "use mainspring apply, or mainspring jobs needs add"
        raise _invalid("/needs", "dependencies are not part of a job's versions", hint)
    problems = list(shape_problems(values, type_))
    if problems:
        raise Invalid(problems[0].message, problems=tuple(problems))
    return msgspec.convert(values, type_)


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


def _in_document(error: Invalid) -> Invalid:
    return Invalid(error.message, code=error.code, problems=tuple(map(in_document, error.problems)))


def _invalid(pointer: str, message: str, hint: str) -> Invalid:
    return Invalid(message, problems=(Problem(pointer, message, hint),))
