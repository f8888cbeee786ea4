"""A worker without a cluster offers no pods; one whose access is unusable does not start, and says why."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mainspring.cli.worker import given_cluster
from mainspring.domain.errors import Invalid
from mainspring.domain.plugin import PluginTask
from mainspring.domain.secret_use import reference_problems
from mainspring.worker.executors import load_executors
from mainspring.worker.executors.pods.cluster import ClusterSettings
from mainspring.worker.executors.pods.executor import PodExecutor
from tests.support.attempts import host

pytestmark = pytest.mark.anyio

SETTINGS = ClusterSettings("jobs")


async def test_without_a_namespace_nothing_is_connected() -> None:
    executor = load_executors()["pod"]
    assert isinstance(executor, PodExecutor)
    await executor.start(host())
    await executor.stop()
    assert given_cluster(None, None, ()) is None


async def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightkube.config.client_adapter", None)
    with pytest.raises(Invalid, match=r"is not installed; install mainspring\[kubernetes\], or leave the option out"):
        await PodExecutor().start(host(cluster=SETTINGS))


@pytest.mark.parametrize("content", [None, "", "no: kubeconfig", "{", "clusters: []\ncontexts: []\n"])
async def test_a_kubeconfig_that_cannot_be_used_is_named(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(path))
    with pytest.raises(Invalid, match="--kube-namespace: cannot read the access to the cluster"):
        await PodExecutor().start(host(cluster=SETTINGS))
    with pytest.raises(Invalid, match="--kube-context prod: cannot read the access to the cluster"):
        await PodExecutor().start(host(cluster=ClusterSettings("jobs", "prod")))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((None, "prod", ()), "need --kube-namespace"),
        ((None, None, ("privileged",)), "need --kube-namespace"),
        (("No", None, ()), "--kube-namespace: 'No' is not a namespace"),
        (("a/../b", None, ()), "is not a namespace"),
        (("jobs", None, ("all",)), "--kube-allow all: 'all' is unknown"),
    ],
)
def test_options_are_checked_before_a_start(given: tuple[str | None, str | None, tuple[str, ...]], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        given_cluster(*given)


@pytest.mark.parametrize("settings", [{"image": "a", "args": ["{{secret:db}}"]}, {"image": "secret://db"}])
def test_a_secret_outside_env_is_refused_when_the_job_is_saved(settings: dict[str, object]) -> None:
    (problem,) = reference_problems(PluginTask("pod", settings), {})
    assert problem.message == "a secret in the specification of a pod is visible to others"
    assert reference_problems(PluginTask("pod", {"image": "a", "env": {"DB": "secret://db"}}), {}) == []
    assert reference_problems(PluginTask("other", settings), {}) == []
