"""Turns one attempt of a `pod` task into the pod and the Secret to create, or the reason why it can't run. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from mainspring.domain.errors import Problem
from mainspring.domain.plugin import PluginTask
from mainspring.domain.template import fill, render, strings
from mainspring.worker.executors.pods import manifest
from mainspring.worker.executors.pods.manifest import Demand, Identity
from mainspring.worker.executors.pods.settings import AllowList, PodSettings, settings_problems
from mainspring.worker.executors.work import Done, Work, missing_parameter

WORDS = ("command", "args")


@dataclass(frozen=True, slots=True)
class Plan:
    """What the executor creates for an attempt."""

    name: str
    settings: PodSettings
    pod: dict[str, Any]
    secret: dict[str, Any] | None
    memory: int  # the limit in bytes; 0: none


def plan(work: Work, *, worker: str, owner: str, allowed: AllowList) -> Plan | Done:
    """Return the pod of an attempt, or its failure: a retry would end the same way."""
    task, definition = work.definition.task, work.definition
    assert isinstance(task, PluginTask)
    if definition.artifacts_in:
        return Done("failed", error="artifacts_in: a pod cannot have the files of other executions", retry=False)
    secret_params = frozenset(name for name, param in definition.params.items() if param.secret)
    try:
        if problem := _misplaced_secret(task.settings, secret_params):
            return _refused([problem])
        settings = msgspec.convert(_filled(task.settings, work), PodSettings, strict=False)
    except KeyError as error:
        return missing_parameter(error)
    except msgspec.ValidationError as error:
        return Done("failed", error=f"/settings: {error}", retry=False)
    if found := settings_problems(settings, allowed):
        return _refused(found)
    given = work.assignment
    identity = Identity(
        execution_id=str(given.execution_id), attempt=given.attempt, session_id=str(work.session_id),
        job_id=str(given.job_id), job=definition.name, worker=worker, owner=owner,
    )  # fmt: skip
    env = task.settings.get("env") or {}
    demand = Demand(
        timeout_s=definition.timeout_s,
        resources=definition.resources,
        context=work.context(),
        secret_env=frozenset(name for name in env if manifest.names_secret(_text(env[name]), secret_params)),
    )
    return Plan(
        name=identity.name,
        settings=settings,
        pod=manifest.build_pod(settings, identity, demand),
        secret=manifest.build_secret(settings, identity, demand),
        memory=definition.resources.get("memory", 0),
    )


def _filled(given: dict[str, Any], work: Work) -> dict[str, Any]:
    """Fill in the templates: words and variables become texts, other settings keep their types."""
    values = work.values()
    filled: dict[str, Any] = {name: fill(value, values) for name, value in given.items() if name not in (*WORDS, "env")}
    for name in WORDS:
        filled[name] = [render(_text(word), values) for word in given.get(name) or ()]
    filled["env"] = {name: render(_text(value), values) for name, value in (given.get("env") or {}).items()}
    return filled


def _misplaced_secret(given: dict[str, Any], secret_params: frozenset[str]) -> Problem | None:
    public = {name: value for name, value in given.items() if name != "env"}
    for pointer, text in strings(public, "/settings"):
        if manifest.names_secret(text, secret_params):
            return Problem(str(pointer), "a secret here is visible to all readers of the pod", "use env")
    return None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _refused(found: list[Problem]) -> Done:
    return Done("failed", error="; ".join(f"{p.pointer}: {p.message} ({p.hint})" for p in found[:20]), retry=False)
