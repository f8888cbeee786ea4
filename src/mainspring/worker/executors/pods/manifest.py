"""Builds the pod of an attempt, and the Secret with what must not stand in it. Pure.

The pod has no capabilities, no privileges to gain, the default seccomp profile and no token of the cluster, unless the
settings of the job ask for more and the worker's operator allows it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mainspring.domain.secret import as_template
from mainspring.domain.template import is_secret, places
from mainspring.worker.executors.pods.settings import PodSettings, Volume

LABEL = "mainspring.io/"
EXECUTION, ATTEMPT, SESSION = f"{LABEL}execution", f"{LABEL}attempt", f"{LABEL}session"
WORKER, OWNER, JOB_ID = f"{LABEL}worker", f"{LABEL}owner", f"{LABEL}job-id"
JOB = f"{LABEL}job"
"""An annotation: names of jobs are longer than labels may be."""
MANAGED_BY = "app.kubernetes.io/managed-by"
CONTAINER = "job"
DEADLINE_MARGIN_S = 60
"""The worker enforces the timeout; the cluster does it this much later, for a worker that died."""
MAX_SECONDS = 2**31 - 1
_PULL = {"missing": "IfNotPresent", "always": "Always", "never": "Never"}


@dataclass(frozen=True, slots=True)
class Identity:
    """The attempt and the worker that a pod belongs to."""

    execution_id: str
    attempt: int
    session_id: str
    job_id: str
    job: str
    worker: str
    owner: str

    @property
    def name(self) -> str:
        """The same for every try to create it, so that one whose answer was lost is found again."""
        return f"mainspring-{self.execution_id}-{self.attempt}"

    def labels(self) -> dict[str, str]:
        return {
            MANAGED_BY: "mainspring",
            EXECUTION: self.execution_id,
            ATTEMPT: str(self.attempt),
            SESSION: self.session_id,
            JOB_ID: self.job_id,
            WORKER: label_value(self.worker),
            OWNER: self.owner,
        }


@dataclass(frozen=True, slots=True)
class Demand:
    """What an attempt needs besides its settings."""

    timeout_s: float
    resources: Mapping[str, int]  # cpu in millicores, memory and disk in bytes, gpu as a count
    context: Mapping[str, str]  # variables that every task has
    secret_env: frozenset[str] = field(default_factory=frozenset)  # variables whose values contain secrets


def label_value(text: str) -> str:
    """Return a text as the value of a label: at most 63 characters of a small alphabet."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", text)[:63].strip("-._")


def names_secret(text: str, secret_params: frozenset[str]) -> bool:
    """Whether a template inserts a secret, directly or by a secret parameter."""
    return any(is_secret(name) or name.removeprefix("params.") in secret_params for name in places(as_template(text)))


def literal(text: str) -> str:
    """Return a text that Kubernetes leaves as it is: `$(NAME)` would insert another variable, such as a secret."""
    return text.replace("$", "$$")


def build_pod(settings: PodSettings, identity: Identity, demand: Demand) -> dict[str, Any]:
    """Return the pod as the API takes it."""
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": min(MAX_SECONDS, math.ceil(demand.timeout_s + settings.grace_s) + DEADLINE_MARGIN_S),
        "terminationGracePeriodSeconds": math.ceil(settings.grace_s),
        "automountServiceAccountToken": settings.service_account is not None,
        "enableServiceLinks": False,
        "hostNetwork": settings.host_network,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(settings, identity, demand)],
        "volumes": _volumes(settings),
    }
    optional = {
        "serviceAccountName": settings.service_account,
        "priorityClassName": settings.priority_class,
        "runtimeClassName": settings.runtime_class,
        "nodeSelector": settings.node_selector,
        "tolerations": [_toleration(each.key, each.value, each.effect) for each in settings.tolerations],
        "imagePullSecrets": [{"name": name} for name in settings.image_pull_secrets],
    }
    spec |= {name: value for name, value in optional.items() if value}
    metadata = {"name": identity.name, "labels": identity.labels(), "annotations": {JOB: identity.job}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def build_secret(settings: PodSettings, identity: Identity, demand: Demand) -> dict[str, Any] | None:
    """Return the Secret with the variables that contain secrets; None if there are none."""
    values = {name: value for name, value in settings.env.items() if name in demand.secret_env}
    if not values:
        return None
    metadata = {"name": identity.name, "labels": identity.labels()}
    return {
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": True, "metadata": metadata,
        "stringData": values,
    }  # fmt: skip


def owned_by(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the change that makes a pod the owner of its Secret: the cluster deletes both together."""
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
    return {"metadata": {"ownerReferences": [owner]}}


def _container(settings: PodSettings, identity: Identity, demand: Demand) -> dict[str, Any]:
    security: dict[str, Any] = {
        "privileged": settings.privileged,
        "allowPrivilegeEscalation": settings.privileged,
        "readOnlyRootFilesystem": settings.read_only,
        "capabilities": {"drop": ["ALL"]} | ({"add": list(settings.capabilities)} if settings.capabilities else {}),
    }
    if settings.user is not None:
        security |= {"runAsUser": settings.user, "runAsNonRoot": settings.user != 0}
    if settings.group is not None:
        security["runAsGroup"] = settings.group
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": settings.image,
        "imagePullPolicy": _PULL[settings.pull],
        "env": _env(settings, identity, demand),
        "resources": _resources(settings, demand.resources),
        "securityContext": security,
        # The end of the log explains a failure: it is part of the pod's status then.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": _mounts(settings),
    }
    for key, words in (("command", settings.command), ("args", settings.args)):
        if words:
            container[key] = [literal(word) for word in words]
    if settings.workdir is not None:
        container["workingDir"] = settings.workdir
    return container


def _env(settings: PodSettings, identity: Identity, demand: Demand) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name, value in {**settings.env, **demand.context}.items():
        if name in demand.secret_env:
            reference = {"name": identity.name, "key": name}
            found.append({"name": name, "valueFrom": {"secretKeyRef": reference}})
        else:
            found.append({"name": name, "value": literal(value)})
    return found


def _resources(settings: PodSettings, amounts: Mapping[str, int]) -> dict[str, Any]:
    """Requests are limits: a pod gets what its job states, and no more."""
    found = {}
    if cpu := amounts.get("cpu"):
        found["cpu"] = f"{cpu}m"
    if memory := amounts.get("memory"):
        found["memory"] = str(memory)
    if disk := amounts.get("disk"):
        found["ephemeral-storage"] = str(disk)
    if gpu := amounts.get("gpu"):
        found[settings.gpu_resource] = str(gpu)
    return {"requests": found, "limits": dict(found)} if found else {}


def _toleration(key: str, value: str | None, effect: str | None) -> dict[str, Any]:
    found = {"key": key, "operator": "Exists"} if value is None else {"key": key, "operator": "Equal", "value": value}
    return found | ({"effect": effect} if effect is not None else {})


def _volumes(settings: PodSettings) -> list[dict[str, Any]]:
    found = [{"name": f"volume-{place}"} | _source(volume) for place, volume in enumerate(settings.volumes)]
    if settings.read_only:
        found.append({"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}})
    return found


def _source(volume: Volume) -> dict[str, Any]:
    ((kind, name),) = volume.sources()
    match kind:
        case "claim":
            return {"persistentVolumeClaim": {"claimName": name, "readOnly": not volume.writable}}
        case "config-map":
            return {"configMap": {"name": name}}
        case "secret":
            return {"secret": {"secretName": name}}
        case "host-path":
            return {"hostPath": {"path": name, "type": "Directory"}}
        case _:
            return {"emptyDir": {"sizeLimit": name}}


def _mounts(settings: PodSettings) -> list[dict[str, Any]]:
    found = []
    for place, volume in enumerate(settings.volumes):
        writable = volume.writable or volume.scratch is not None
        found.append({"name": f"volume-{place}", "mountPath": volume.mount, "readOnly": not writable})
    if settings.read_only:
        found.append({"name": "tmp", "mountPath": "/tmp", "readOnly": False})
    return found
