"""What the status of a pod says: why it still waits, and how it ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mainspring.domain.execution import Outcome
from mainspring.domain.placement.resources import show_amount
from mainspring.worker.executors.work import Done

Pod = Mapping[str, Any]
Wait = Literal["node", "image", "container", "never"]

IMAGE_REASONS = (
    "ErrImagePull",
    "ImagePullBackOff",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
)
CONTAINER_REASONS = (
    "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CreatePodSandboxError",
    "CrashLoopBackOff",
)  # fmt: skip
NEVER_REASONS = ("InvalidImageName", "ErrImageNeverPull")
"""Waiting longer does not help, and neither does a retry."""
NODE_LOST = ("NodeLost", "NodeStatusUnknown", "NodeShutdown", "Shutdown", "Terminated")
"""Reasons of a pod whose node has gone or stopped."""
DISRUPTIONS: dict[str, tuple[Outcome, str]] = {
    "PreemptionByScheduler": ("preempted", "preempted by a pod with a higher priority"),
    "EvictionByEvictionAPI": ("preempted", "evicted from its node"),
    "DeletionByTaintManager": ("lost", "its node is tainted or does not answer"),
    "DeletionByPodGC": ("lost", "its node is gone"),
}
"""Reasons of the condition DisruptionTarget, with the outcome. The kubelet's own evictions are failures."""
MAX_MESSAGE_CHARS = 2000
MAX_LINE_CHARS = 300
TAIL_LINES = 10
OUT_OF_MEMORY = "OOMKilled"
SIGKILL_EXIT = 137


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a pod has not started yet."""

    on: Wait
    reason: str


def waiting(pod: Pod) -> Waiting | None:
    """Return why a pod waits; None once its container has started, or if there is no reason yet."""
    status = pod.get("status") or {}
    if status.get("phase", "Pending") != "Pending":
        return None
    state = _container(pod).get("state") or {}
    if (found := state.get("waiting")) is not None:
        reason = str(found.get("reason") or "")
        text = _joined(reason, found.get("message"))
        if reason in NEVER_REASONS:
            return Waiting("never", text)
        if reason in IMAGE_REASONS:
            return Waiting("image", text)
        if reason in CONTAINER_REASONS:
            return Waiting("container", text)
    scheduled = condition(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False":
        return Waiting("node", _joined(str(scheduled.get("reason") or ""), scheduled.get("message")))
    return None


def has_started(pod: Pod) -> bool:
    """Whether its container runs or has run: it has a log."""
    state = _container(pod).get("state") or {}
    return "running" in state or ("terminated" in state and bool(state["terminated"].get("startedAt")))


def is_over(pod: Pod) -> bool:
    """Whether no container of the pod runs any more."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_leaving(pod: Pod) -> bool:
    """Whether the pod is being deleted."""
    return pod["metadata"].get("deletionTimestamp") is not None


def node_of(pod: Pod) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def exit_code(pod: Pod) -> int | None:
    ended = (_container(pod).get("state") or {}).get("terminated")
    return None if ended is None else int(ended.get("exitCode", -1))


def condition(pod: Pod, kind: str) -> Mapping[str, Any] | None:
    found = (pod.get("status") or {}).get("conditions") or []
    return next((each for each in found if each.get("type") == kind), None)


def ending(pod: Pod, *, timeout_s: float, memory: int) -> Done:
    """Return how a pod ended that is over. `memory` is its limit in bytes; 0: none."""
    status = pod["status"]
    code = exit_code(pod)
    if status["phase"] == "Succeeded":
        return Done("succeeded", 0 if code is None else code)
    reason, message = str(status.get("reason") or ""), status.get("message")
    if reason == "DeadlineExceeded":
        return Done("timed_out", code, f"timed out after {timeout_s:g} s")
    if reason in NODE_LOST or status["phase"] == "Unknown":
        return Done("lost", code, _on_node(pod, "the node was lost", _joined(reason, message)))
    if (disrupted := disruption(pod, code)) is not None:
        return disrupted
    if reason == "Evicted":
        return Done("failed", code, _on_node(pod, "evicted", _short(message)))
    if is_leaving(pod):
        return deletion(pod)
    ended = (_container(pod).get("state") or {}).get("terminated")
    if ended is not None:
        return _container_failure(ended, code if code is not None else -1, memory)
    return Done("failed", code, _on_node(pod, "the pod failed", _joined(reason, message)))


def disruption(pod: Pod, code: int | None = None) -> Done | None:
    """Return the end of a pod that the cluster took away from its node; None if it did not."""
    found = condition(pod, "DisruptionTarget")
    if found is None or found.get("status") != "True":
        return None
    if (known := DISRUPTIONS.get(str(found.get("reason")))) is None:
        return None
    outcome, words = known
    return Done(outcome, code, _on_node(pod, words, _short(found.get("message"))))


def deletion(pod: Pod) -> Done:
    """Return the end of a pod that is gone, and was not over when it was last seen."""
    if (disrupted := disruption(pod, exit_code(pod))) is not None:
        return disrupted
    return Done("failed", exit_code(pod), _on_node(pod, "the pod was deleted by another client of the cluster", ""))


def _container_failure(ended: Mapping[str, Any], code: int, memory: int) -> Done:
    reason, message = str(ended.get("reason") or ""), ended.get("message")
    limit = show_amount("memory", memory) if memory else ""
    if reason == OUT_OF_MEMORY:
        words = f"it used more than {limit}" if limit else "its node had no memory left"
        return Done("failed", code, f"out of memory: {words}")
    if reason in ("ContainerCannotRun", "StartError"):
        return Done("failed", code, _joined("the container could not be started", _short(message)))
    if reason == "ContainerStatusUnknown":
        return Done("lost", code, _joined("the node was lost", _short(message)))
    if code == SIGKILL_EXIT and limit:
        return Done("failed", code, f"ended by SIGKILL; its memory limit is {limit}")
    words = f"ended by signal {code - 128}" if code > 128 else f"exit code {code}"
    return Done("failed", code, explained(words, message))


def explained(error: str, message: Any) -> str:
    """Return an error with the end of the log, as for programs: the very last line first, then all of them."""
    lines = [line.strip()[:MAX_LINE_CHARS] for line in str(message or "")[-MAX_MESSAGE_CHARS:].splitlines()]
    lines = ["".join(c if c.isprintable() else " " for c in line) for line in lines if line][-TAIL_LINES:]
    if not lines:
        return error
    first = f"{error}: {lines[-1]}"
    return first if len(lines) == 1 else "\n".join([first, *lines])


def _on_node(pod: Pod, words: str, detail: str) -> str:
    where = f" (node {node})" if (node := node_of(pod)) else ""
    return _joined(f"{words}{where}", detail)


def _joined(first: str, message: Any) -> str:
    detail = _short(message)
    return f"{first}: {detail}" if first and detail else first or detail


def _short(message: Any) -> str:
    return str(message or "").strip()[:MAX_MESSAGE_CHARS]


def _container(pod: Pod) -> Mapping[str, Any]:
    found = (pod.get("status") or {}).get("containerStatuses") or [{}]
    first: Mapping[str, Any] = found[0]
    return first
