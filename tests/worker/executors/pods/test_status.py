"""What a pod's status means: waiting, running, and each way to end."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.worker.executors.pods import status
from mainspring.worker.executors.pods.patience import CONTAINER_S, IMAGE_S, LEAVE_S, Patience
from mainspring.worker.executors.pods.settings import PodSettings
from mainspring.worker.executors.work import Done


def pod(phase: str = "Pending", *, state: dict[str, Any] | None = None, leaving: bool = False, **more: Any) -> Any:
    found: dict[str, Any] = {"metadata": {"name": "p"}, "spec": {"nodeName": "n1"}, "status": {"phase": phase} | more}
    if leaving:
        found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        found["spec"]["terminationGracePeriodSeconds"] = 10
    if state is not None:
        found["status"]["containerStatuses"] = [{"name": "job", "state": state}]
    return found


def ended(code: int, reason: str = "Error", message: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message, "startedAt": "2026-01-01T00:00:00Z"}}


def disrupted(reason: str, message: str = "why") -> list[dict[str, str]]:
    return [{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}]


ENDINGS: list[tuple[str, Any, Done]] = [
    ("success", pod("Succeeded", state=ended(0, "Completed")), Done("succeeded", 0)),
    (
        "exit code",
        pod("Failed", state=ended(3, message="one\nboom\n")),
        Done("failed", 3, "exit code 3: boom\none\nboom"),
    ),
    ("no message", pod("Failed", state=ended(3)), Done("failed", 3, "exit code 3")),
    ("signal", pod("Failed", state=ended(139)), Done("failed", 139, "ended by signal 11")),
    (
        "memory",
        pod("Failed", state=ended(137, "OOMKilled")),
        Done("failed", 137, "out of memory: it used more than 64Mi"),
    ),
    ("killed", pod("Failed", state=ended(137)), Done("failed", 137, "ended by SIGKILL; its memory limit is 64Mi")),
    (
        "evicted",
        pod("Failed", reason="Evicted", message="The node was low on resource: memory."),
        Done("failed", None, "evicted (node n1): The node was low on resource: memory."),
    ),
    (
        "kubelet eviction with its condition",
        pod("Failed", reason="Evicted", message="disk", conditions=disrupted("TerminationByKubelet")),
        Done("failed", None, "evicted (node n1): disk"),
    ),
    ("deadline", pod("Failed", reason="DeadlineExceeded"), Done("timed_out", None, "timed out after 60 s")),
    ("node lost", pod("Failed", reason="NodeLost"), Done("lost", None, "the node was lost (node n1): NodeLost")),
    (
        "shutdown",
        pod("Failed", reason="Terminated", message="imminent node shutdown"),
        Done("lost", None, "the node was lost (node n1): Terminated: imminent node shutdown"),
    ),
    (
        "status unknown",
        pod("Failed", state=ended(137, "ContainerStatusUnknown", "gone")),
        Done("lost", 137, "the node was lost: gone"),
    ),
    (
        "preempted",
        pod("Failed", state=ended(143), conditions=disrupted("PreemptionByScheduler")),
        Done("preempted", 143, "preempted by a pod with a higher priority (node n1): why"),
    ),
    (
        "drained",
        pod("Failed", state=ended(143), conditions=disrupted("EvictionByEvictionAPI")),
        Done("preempted", 143, "evicted from its node (node n1): why"),
    ),
    (
        "taint",
        pod("Failed", state=ended(143), conditions=disrupted("DeletionByTaintManager")),
        Done("lost", 143, "its node is tainted or does not answer (node n1): why"),
    ),
    (
        "deleted by a person",
        pod("Failed", state=ended(143), leaving=True),
        Done("failed", 143, "the pod was deleted by another client of the cluster (node n1)"),
    ),
    (
        "cannot run",
        pod("Failed", state=ended(128, "StartError", 'exec: "x": not found')),
        Done("failed", 128, 'the container could not be started: exec: "x": not found'),
    ),
    (
        "refused by the node",
        pod("Failed", reason="OutOfcpu", message="Node didn't have enough resource: cpu"),
        Done("failed", None, "the pod failed (node n1): OutOfcpu: Node didn't have enough resource: cpu"),
    ),
]


@pytest.mark.parametrize(("found", "done"), [(p, d) for _, p, d in ENDINGS], ids=[name for name, _, _ in ENDINGS])
def test_an_end_has_its_outcome_and_reason(found: Any, done: Done) -> None:
    assert status.is_over(found)
    assert status.ending(found, timeout_s=60, memory=64 << 20) == done


def test_a_long_log_is_cut() -> None:
    done = status.ending(pod("Failed", state=ended(1, message="x" * 10_000 + "\n\x1b[31mlast")), timeout_s=1, memory=0)
    assert done.error is not None and done.error.startswith("exit code 1:  [31mlast\n") and len(done.error) < 3_000


WAITS: list[tuple[str, Any, str, float, bool]] = [
    (
        "node",
        pod(
            conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]
        ),
        "no node for the pod within 10m: Unschedulable: 0/3 nodes",
        600,
        True,
    ),
    (
        "image",
        pod(state={"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}),
        "cannot pull the image a:1 within 2m: ImagePullBackOff: Back-off",
        IMAGE_S,
        True,
    ),
    (
        "container",
        pod(state={"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "x" not found'}}),
        'the container can\'t be created within 1m: CreateContainerConfigError: secret "x" not found',
        CONTAINER_S,
        True,
    ),
    (
        "name",
        pod(state={"waiting": {"reason": "InvalidImageName", "message": "bad"}}),
        "the container can't be created: InvalidImageName: bad",
        0,
        False,
    ),
    ("nothing", pod(), "the pod has not started within 10m", 600, True),
]


@pytest.mark.parametrize(
    ("found", "error", "limit_s", "retry"), [w[1:] for w in WAITS], ids=[name for name, *_ in WAITS]
)
def test_a_wait_is_bounded_and_says_why(found: Any, error: str, limit_s: float, retry: bool) -> None:
    patience = Patience(PodSettings("a:1"), created=100.0)
    if limit_s:
        assert patience.look(found, 100.0) == (None, limit_s)
        assert patience.look(found, 100.0 + limit_s - 1) == (None, 1)
    assert patience.look(found, 100.0 + limit_s)[0] == Done("failed", error=error, retry=retry)


def test_pull_errors_count_together_and_end_with_success() -> None:
    """ErrImagePull and ImagePullBackOff take turns; after a wait without an error the time begins again."""
    patience = Patience(PodSettings("a:1", start_timeout="1h"), created=0.0)
    error, backoff = ({"waiting": {"reason": r}} for r in ("ErrImagePull", "ImagePullBackOff"))
    assert patience.look(pod(state=error), 10.0) == (None, IMAGE_S)
    assert patience.look(pod(state=backoff), 60.0) == (None, IMAGE_S - 50)
    assert patience.look(pod(state={"waiting": {"reason": "ContainerCreating"}}), 70.0)[0] is None
    assert patience.look(pod(state=backoff), 100.0) == (None, IMAGE_S)
    assert patience.look(pod("Running", state={"running": {}}), 5_000.0) == (None, None)


def test_a_deleted_pod_that_does_not_go_has_lost_its_node() -> None:
    patience, leaving = Patience(PodSettings("a:1"), created=0.0), pod("Running", state={"running": {}}, leaving=True)
    assert patience.look(leaving, 50.0) == (None, 10 + LEAVE_S)
    done, _ = patience.look(leaving, 50.0 + 10 + LEAVE_S)
    assert done == Done("lost", error="the pod was deleted, and its node n1 does not answer")
