"""An API server for the tests of a file, a node that the test plays, and an executor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainspring.worker.executors.pods.executor import PodExecutor
from tests.support.kubelet import Kubelet
from tests.support.kubernetes_server import KubernetesServer, find_server
from tests.support.pods import (
    NAMESPACE,
    WAIT_S,
    executing,
    is_empty,
)
from tests.support.processes import until_async


@pytest.fixture(scope="module")
async def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KubernetesServer]:
    find_server("kube-apiserver")
    server = KubernetesServer(tmp_path_factory.mktemp("kubernetes"))
    await server.start()
    await server.make_namespace(NAMESPACE)
    yield server
    await server.stop()


@pytest.fixture
async def kubelet(kubernetes: KubernetesServer, tmp_path: Path) -> AsyncIterator[Kubelet]:
    kubelet = Kubelet(kubernetes, NAMESPACE, tmp_path / "kubelet")
    await kubelet.start()
    yield kubelet
    await until_async("the removal of every pod and Secret", lambda: is_empty(kubernetes), within_s=WAIT_S)
    await kubelet.stop()


@pytest.fixture
async def executor(
    kubernetes: KubernetesServer, kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PodExecutor]:
    async with executing(kubernetes, tmp_path, monkeypatch) as executor:
        yield executor
