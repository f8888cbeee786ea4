"""The pod of an attempt: what is in it, and above all what is not."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from mainspring.domain.params import Param
from mainspring.domain.plugin import PluginTask
from mainspring.worker.executors.pods.attempt import Plan, plan
from mainspring.worker.executors.pods.manifest import label_value, literal
from mainspring.worker.executors.pods.settings import AllowList
from mainspring.worker.executors.work import Done, Work
from tests.support.attempts import attempt

SECRET = "hunter2-and-more"


def work_of(settings: dict[str, Any], **more: Any) -> Work:
    work = attempt(PluginTask("pod", {"image": "busybox:1.36"} | settings), **more)
    work.secrets = {"db": SECRET}
    work.definition = msgspec.structs.replace(work.definition, secrets=("db",))
    return work


def planned(settings: dict[str, Any], *allow: str, resources: dict[str, int] | None = None, **more: Any) -> Plan | Done:
    work = work_of(settings, **more)
    if resources is not None:
        work.definition = msgspec.structs.replace(work.definition, resources=resources)
    return plan(work, worker="host 1/a", owner="the-owner", allowed=AllowList(allow))


def pod_of(settings: dict[str, Any], *allow: str, **more: Any) -> dict[str, Any]:
    found = planned(settings, *allow, **more)
    assert isinstance(found, Plan), found
    return found.pod


def test_a_pod_has_no_privileges_and_no_token() -> None:
    spec = pod_of({"command": ["true"]})["spec"]
    (container,) = spec["containers"]
    assert spec["restartPolicy"] == "Never"
    assert spec["automountServiceAccountToken"] is False
    assert spec["hostNetwork"] is False
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "privileged": False, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": False,
        "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert spec["volumes"] == [] and "serviceAccountName" not in spec


def test_name_and_labels_follow_from_the_attempt() -> None:
    work = work_of({})
    first = plan(work, worker="host 1/a", owner="o", allowed=AllowList())
    again = plan(work, worker="host 1/a", owner="o", allowed=AllowList())
    assert isinstance(first, Plan) and first == again
    given = work.assignment
    assert first.name == f"mainspring-{given.execution_id}-{given.attempt}" == first.pod["metadata"]["name"]
    assert first.pod["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "mainspring", "mainspring.io/execution": str(given.execution_id),
        "mainspring.io/attempt": str(given.attempt), "mainspring.io/session": str(work.session_id),
        "mainspring.io/job-id": str(given.job_id), "mainspring.io/worker": "host-1-a", "mainspring.io/owner": "o",
    }  # fmt: skip
    assert first.pod["metadata"]["annotations"] == {"mainspring.io/job": "the-job"}


@pytest.mark.parametrize(("timeout_s", "seconds"), [(60.0, 130), (0.5, 71), (1e12, 2**31 - 1)])
def test_the_cluster_ends_what_a_dead_worker_left(timeout_s: float, seconds: int) -> None:
    assert pod_of({}, timeout_s=timeout_s)["spec"]["activeDeadlineSeconds"] == seconds


def test_resources_of_the_job_are_requests_and_limits() -> None:
    resources = {"cpu": 1500, "memory": 1 << 30, "gpu": 2, "licence-a": 1}
    (container,) = pod_of({"gpu_resource": "amd.com/gpu"}, resources=resources)["spec"]["containers"]
    amounts = {"cpu": "1500m", "memory": str(1 << 30), "amd.com/gpu": "2"}
    assert container["resources"] == {"requests": amounts, "limits": amounts}


@pytest.mark.parametrize("reference", ["secret://db", "postgres://me:{{secret:db}}@db", "{{params.password}}"])
def test_a_secret_is_in_a_secret_and_not_in_the_pod(reference: str) -> None:
    declared = {"password": Param(type="string", secret=True, default="secret://db")}
    found = planned({"env": {"DB": reference, "LEVEL": "{{params.level}}"}}, declared=declared, params={"level": 3})
    assert isinstance(found, Plan) and found.secret is not None
    assert SECRET not in json.dumps(found.pod)
    assert SECRET in found.secret["stringData"]["DB"]
    env = {each["name"]: each for each in found.pod["spec"]["containers"][0]["env"]}
    assert env["DB"] == {"name": "DB", "valueFrom": {"secretKeyRef": {"name": found.name, "key": "DB"}}}
    assert env["LEVEL"] == {"name": "LEVEL", "value": "3"}
    assert found.secret["metadata"]["name"] == found.name and set(found.secret["stringData"]) == {"DB"}


@pytest.mark.parametrize(
    "settings",
    [
        {"args": ["--password", "{{secret:db}}"]},
        {"command": ["secret://db"]},
        {"image": "{{secret:db}}"},
        {"args": ["{{params.password}}"]},
        {"volumes": [{"mount": "/x", "claim": "{{secret:db}}"}]},
    ],
)
def test_a_secret_elsewhere_fails_the_attempt(settings: dict[str, Any]) -> None:
    declared = {"password": Param(type="string", secret=True, default="secret://db")}
    found = planned(settings, declared=declared)
    assert isinstance(found, Done)
    assert (found.outcome, found.retry) == ("failed", False)
    assert "use env" in str(found.error) and SECRET not in str(found.error)


def test_a_parameter_cannot_insert_the_secret_of_another_variable() -> None:
    """Kubernetes replaces `$(DB)` in arguments and variables by the value of DB."""
    settings = {"args": ["echo", "{{params.who}}"], "env": {"DB": "secret://db", "COPY": "{{params.who}}"}}
    (container,) = pod_of(settings, params={"who": "$(DB) $$(DB)"})["spec"]["containers"]
    assert container["args"] == ["echo", "$$(DB) $$$$(DB)"]
    assert {"name": "COPY", "value": "$$(DB) $$$$(DB)"} in container["env"]
    assert literal("$5") == "$$5"


def test_an_allowed_pod_has_what_it_asked_for() -> None:
    settings = {
        "service_account": "etl", "tolerations": [{"key": "gpu", "effect": "NoSchedule"}], "read_only": True,
        "volumes": [{"mount": "/data", "claim": "data", "writable": True}, {"mount": "/cfg", "config_map": "etl"}],
        "node_selector": {"disk": "ssd"}, "user": 1000, "capabilities": ["NET_RAW"], "grace": "2m",
    }  # fmt: skip
    allow = ("service-account=etl", "toleration=gpu", "claim=data", "config-map=etl", "capability=NET_RAW")
    spec = pod_of(settings, *allow)["spec"]
    (container,) = spec["containers"]
    assert spec["serviceAccountName"] == "etl" and spec["automountServiceAccountToken"] is True
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert spec["nodeSelector"] == {"disk": "ssd"} and spec["terminationGracePeriodSeconds"] == 120
    assert container["securityContext"]["runAsUser"] == 1000 and container["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["NET_RAW"]}
    assert spec["volumes"] == [
        {"name": "volume-0", "persistentVolumeClaim": {"claimName": "data", "readOnly": False}},
        {"name": "volume-1", "configMap": {"name": "etl"}},
        {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
    ]
    assert [mount["readOnly"] for mount in container["volumeMounts"]] == [False, True, False]


def test_a_template_in_the_image_is_checked_after_it_is_filled_in() -> None:
    found = planned({"image": "{{params.image}}"}, "image=good/*", params={"image": "evil/x"})
    assert isinstance(found, Done) and found.error is not None and found.error.startswith("/settings/image")
    missing = planned({"image": "{{params.image}}"})
    assert missing == Done("failed", error="the parameter 'params.image' was not given", retry=False)


@pytest.mark.parametrize("name", ["", "-", "a" * 100, "Rechner 7", "x/y", "ä"])
def test_every_worker_name_becomes_a_label(name: str) -> None:
    value = label_value(name)
    assert len(value) <= 63 and all(c.isalnum() or c in "-._" for c in value)
    assert not value or (value[0].isalnum() and value[-1].isalnum())
