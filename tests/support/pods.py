"""Executors of pods and their attempts, with the API server of a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from mainspring.domain.plugin import PluginTask
from mainspring.worker.executors import Done, Work
from mainspring.worker.executors.pods.cluster import ClusterSettings
from mainspring.worker.executors.pods.executor import PodExecutor
from tests.support.attempts import attempt, host, written
from tests.support.kubernetes_server import KubernetesServer
from tests.support.processes import until, until_async

NAMESPACE = "jobs"
PODS, SECRETS = f"/api/v1/namespaces/{NAMESPACE}/pods", f"/api/v1/namespaces/{NAMESPACE}/secrets"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
SECRET = "hunter2-and-more"
WAIT_S = 60


_begun: set[asyncio.Task[Done]] = set()


async def is_empty(kubernetes: KubernetesServer) -> bool:
    found = [await kubernetes.request("GET", path) for path in (PODS, SECRETS)]
    return not any(each["items"] for each in found)


@asynccontextmanager
async def executing(
    kubernetes: KubernetesServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *allow: str,
    lease_s: int = 60,
    **config: Any,
) -> AsyncIterator[PodExecutor]:
    path = kubernetes.kubeconfig(tmp_path / f"{uuid4().hex}.yaml", **config)
    monkeypatch.setenv("KUBECONFIG", str(path))
    executor = PodExecutor(lease_s=lease_s)
    await executor.start(host(name="the-worker", cluster=ClusterSettings(NAMESPACE, allow=allow)))
    try:
        yield executor
    finally:
        for task in _begun:
            task.cancel()
        await asyncio.gather(*_begun, return_exceptions=True)
        _begun.clear()
        await executor.stop()


def script(text: str, **more: Any) -> PluginTask:
    return PluginTask("pod", {"image": "busybox:1.36", "command": ["/bin/sh", "-c", text]} | more)


def first_attempt(task: PluginTask, *, number: int = 1, **more: Any) -> Work:
    work = attempt(task, **more)
    work.assignment = msgspec.structs.replace(work.assignment, attempt=number)
    return work


async def see(executor: PodExecutor, task: PluginTask, **more: Any) -> tuple[Done, Work]:
    work = first_attempt(task, **more)
    done = await executor.execute(work)
    work.finish_output()
    return done, work


def begin(executor: PodExecutor, work: Work) -> asyncio.Task[Done]:
    """Start an attempt that ends with its executor at the latest."""
    task = asyncio.create_task(executor.execute(work))
    _begun.add(task)
    return task


async def until_written(work: Work, text: str) -> None:
    seen: list[str] = []

    def there() -> bool:
        seen.append(written(work))
        return text in "".join(seen)

    await until(f"{text!r} in the output", there, within_s=WAIT_S)


def pod_name(work: Work) -> str:
    return f"mainspring-{work.assignment.execution_id}-{work.assignment.attempt}"


async def until_gone(kubernetes: KubernetesServer, path: str) -> None:
    async def gone() -> bool:
        return await kubernetes.find(path) is None

    await until_async(f"the removal of {path}", gone, within_s=WAIT_S)
