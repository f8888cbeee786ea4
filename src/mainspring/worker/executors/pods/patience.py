"""How long a pod may wait to start, by the reason it gives. Pure."""

from __future__ import annotations

from mainspring.domain.duration import format_duration
from mainspring.worker.executors.pods import status
from mainspring.worker.executors.pods.settings import PodSettings
from mainspring.worker.executors.work import Done

IMAGE_S = 120.0
"""How long an image may fail to be pulled: registries have short outages."""
CONTAINER_S = 60.0
"""How long a container may fail to be created, such as for a volume that does not exist yet."""
LEAVE_S = 30.0
"""How long after its grace period a deleted pod may still be there. Longer: its node does not answer."""


class Patience:
    """Watches the start of one pod. Instants are of a monotonic clock, given by the caller."""

    def __init__(self, settings: PodSettings, created: float) -> None:
        self._settings = settings
        self._created = created
        self._since: dict[status.Wait, float] = {}
        self._leaving: float | None = None

    def look(self, pod: status.Pod, now: float) -> tuple[Done | None, float | None]:
        """Return the failure of a pod that has waited too long, or when to look again; None: at its next change."""
        if status.is_leaving(pod):
            return self._look_at_leaving(pod, now)
        if status.has_started(pod) or (pod.get("status") or {}).get("phase") == "Running":
            return None, None
        start_s = self._settings.start_s
        waiting = status.waiting(pod)
        if waiting is None:
            self._since.clear()
            return self._unless_later(now, self._created + start_s, "the pod has not started", "")
        if waiting.on == "never":
            error = f"the container can't be created: {waiting.reason}"
            return Done("failed", error=error, retry=False), None
        since = self._since.setdefault(waiting.on, now)
        match waiting.on:
            case "image":
                words, until = f"cannot pull the image {self._settings.image}", since + min(IMAGE_S, start_s)
            case "container":
                words, until = "the container can't be created", since + min(CONTAINER_S, start_s)
            case _:
                self._since = {"node": since}
                words, until = "no node for the pod", self._created + start_s
        return self._unless_later(now, min(until, self._created + start_s), words, waiting.reason)

    def _unless_later(self, now: float, until: float, words: str, reason: str) -> tuple[Done | None, float | None]:
        if now < until:
            return None, until - now
        waited = f"{words} within {format_duration(max(0.0, round(now - self._created)))}"
        return Done("failed", error=f"{waited}: {reason}" if reason else waited), None

    def _look_at_leaving(self, pod: status.Pod, now: float) -> tuple[Done | None, float | None]:
        if self._leaving is None:
            self._leaving = now
        grace_s = float((pod.get("spec") or {}).get("terminationGracePeriodSeconds") or 0)
        until = self._leaving + grace_s + LEAVE_S
        if now < until:
            return None, until - now
        if (disrupted := status.disruption(pod)) is not None:
            return disrupted, None
        error = f"the pod was deleted, and its node {status.node_of(pod) or '(none)'} does not answer"
        return Done("lost", error=error), None
