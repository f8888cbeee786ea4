"""The chart on a real API server: every object is accepted, and its workers have the rights they need and no others."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from mainspring.domain.plugin import PluginTask
from mainspring.worker.executors import Done
from mainspring.worker.executors.pods.cluster import ClusterSettings
from mainspring.worker.executors.pods.executor import PodExecutor
from tests.support.attempts import attempt, host, written
from tests.support.chart import EVERYTHING, objects
from tests.support.kubelet import Kubelet
from tests.support.kubernetes_server import KubernetesServer, find_server
from tests.support.processes import until_async

pytestmark = pytest.mark.anyio

RELEASE, JOBS = "mainspring", "mainspring-jobs"
PLURALS = {
    "Deployment": "deployments", "Service": "services", "Ingress": "ingresses", "Role": "roles",
    "PodDisruptionBudget": "poddisruptionbudgets", "RoleBinding": "rolebindings", "ServiceAccount": "serviceaccounts",
    "ScaledObject": "scaledobjects", "TriggerAuthentication": "triggerauthentications",
}  # fmt: skip


@pytest.fixture(scope="module")
async def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KubernetesServer]:
    keda = find_server("keda")
    server = KubernetesServer(tmp_path_factory.mktemp("kubernetes"))
    await server.start()
    for name in (RELEASE, JOBS):
        await server.make_namespace(name)
    for path in sorted(keda.glob("*.yaml")):
        definition = yaml.safe_load(path.read_text())
        await server.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    for kind in ("scaledobjects", "triggerauthentications"):

        async def is_served(kind: str = kind) -> bool:
            return await server.find(f"/apis/keda.sh/v1alpha1/namespaces/{RELEASE}/{kind}") is not None

        await until_async(f"the API of {kind}", is_served, within_s=60)
    yield server
    await server.stop()


def path_of(found: dict[str, Any]) -> str:
    version = found["apiVersion"]
    namespace = found["metadata"].get("namespace", RELEASE)
    return f"/api{'s' if '/' in version else ''}/{version}/namespaces/{namespace}/{PLURALS[found['kind']]}"


async def test_every_object_of_the_chart_is_accepted(kubernetes: KubernetesServer) -> None:
    for found in objects(EVERYTHING):
        await kubernetes.request("POST", path_of(found), found, fieldValidation="Strict", dryRun="All")
    (scaled,) = [found for found in objects(EVERYTHING) if found["kind"] == "ScaledObject"]
    scaled["spec"]["maxReplicas"] = scaled["spec"].pop("maxReplicaCount")
    with pytest.raises(AssertionError, match="unknown field"):
        await kubernetes.request("POST", path_of(scaled), scaled, fieldValidation="Strict", dryRun="All")


async def test_a_worker_of_the_chart_may_run_pods_and_nothing_else(
    kubernetes: KubernetesServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for found in objects(EVERYTHING):
        if found["kind"] in ("ServiceAccount", "Role", "RoleBinding"):
            await kubernetes.request("POST", path_of(found), found)
    token = await kubernetes.account_token(RELEASE, "prod-pod-worker")
    monkeypatch.setenv("KUBECONFIG", str(kubernetes.kubeconfig(tmp_path / "config.yaml", token=token)))
    kubelet, executor = Kubelet(kubernetes, JOBS, tmp_path / "kubelet"), PodExecutor()
    await kubelet.start()
    await executor.start(host(name="w", cluster=ClusterSettings(JOBS)))
    settings = {"image": "a:1", "command": ["sh", "-c", "echo $DB | tr a-z A-Z"], "env": {"DB": "secret://db"}}
    work = attempt(PluginTask("pod", settings))
    work.secrets = {"db": "hunter2"}
    assert await executor.execute(work) == Done("succeeded", 0)
    assert written(work) == "HUNTER2\n"
    await executor.stop()
    await kubelet.stop()
    allowed = await kubernetes.client.get(
        f"/api/v1/namespaces/{JOBS}/pods", headers={"Authorization": f"Bearer {token}"}
    )
    assert allowed.status_code == 200
    for path in (f"/api/v1/namespaces/{RELEASE}/secrets", "/api/v1/nodes", f"/api/v1/namespaces/{JOBS}/configmaps"):
        refused = await kubernetes.client.get(path, headers={"Authorization": f"Bearer {token}"})
        assert refused.status_code == 403, json.dumps(refused.json())
