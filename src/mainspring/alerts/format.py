"""Formats notifications: text for mail and chat, JSON for webhooks, Slack and PagerDuty. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from mainspring.domain.events import TEST

MAX_SUMMARY = 1000
"""PagerDuty accepts 1,024 characters."""
_OPENS = ("failed", "timed_out", "lost", "firing", "late", "missed", "slow", "disabled", "test")
_CLOSES = ("succeeded", "recovered", "resolved")


@dataclass(frozen=True, slots=True)
class Notification:
    """One event as it is sent to a channel."""

    event: str
    event_id: str
    at: datetime
    data: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The last part of the event: failed, late, firing."""
        return self.event.rpartition(".")[2]

    @property
    def severity(self) -> str:
        if self.event.startswith("alert."):
            return str(self.data.get("severity", "warning"))
        if self.event == TEST or self.name in _CLOSES or self.name in ("cancelled", "retrying"):
            return "info"
        return "error" if self.name in ("failed", "timed_out", "lost") else "warning"


def summary(notification: Notification) -> str:
    """Return a one-line summary: the subject of a mail, the text of a chat message."""
    data = notification.data
    if notification.event == TEST:
        return f"Mainspring: test notification for channel {data.get('channel')}"
    if notification.event.startswith("alert."):
        return f"[{notification.name}] {data.get('rule')}: {data.get('summary')}"
    if notification.event == "channel.disabled":
        return f"Channel {data.get('channel')} was disabled after repeated failures: {data.get('error')}"
    return f"{data.get('job')}: {_about_job(notification)}"


def _about_job(notification: Notification) -> str:
    data = notification.data
    because = data.get("error") or data.get("reason")
    tail = f": {str(because)[:300]}" if because else ""
    match notification.name:
        case "recovered":
            return "recovered: the latest execution succeeded"
        case "late":
            return f"late: the execution due at {data.get('due_at')} has not started"
        case "missed":
            return f"missed: the fire at {data.get('fire_at')} was skipped ({data.get('reason')})"
        case "slow":
            return f"slow: took {data.get('duration_ms')} ms (p95: {round(data.get('usual_ms') or 0)} ms)"
        case "retrying":
            return f"attempt {data.get('attempt')} ended as {data.get('outcome')}, retrying{tail}"
        case "failed" if notification.event == "job.failed":
            return f"{str(data.get('state')).replace('_', ' ')} after {data.get('attempt')} attempts{tail}"
        case name:
            return name.replace("_", " ") + tail


def details(notification: Notification) -> str:
    """Return all fields, one per line, for the body of a mail."""
    return "\n".join(f"{name}: {value}" for name, value in notification.data.items() if value is not None)


def webhook(notification: Notification) -> dict[str, Any]:
    return {"type": notification.event, "timestamp": notification.at, "data": notification.data}


def slack(notification: Notification) -> dict[str, Any]:
    glyph = {"info": "✔", "warning": "▲", "error": "✖", "critical": "✖"}[notification.severity]
    text = f"{glyph} {_escaped(summary(notification))}"
    return {"text": text, "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": text[:3000]}}]}


def _escaped(text: str) -> str:
    """Escape the three characters that Slack reads as markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def pagerduty(notification: Notification, routing_key: str) -> dict[str, Any] | None:
    """Return an event of the Events API v2; None if it neither opens nor closes an incident."""
    action = pagerduty_action(notification)
    if action is None:
        return None
    event = {"routing_key": routing_key, "event_action": action, "dedup_key": dedup_key(notification)}
    if action == "resolve":
        return event
    return {
        **event,
        "payload": {
            "summary": summary(notification)[:MAX_SUMMARY],
            "source": "mainspring",
            "severity": notification.severity,
            "timestamp": notification.at,
            "component": notification.data.get("job") or notification.data.get("rule") or "mainspring",
            "class": notification.event,
            "custom_details": notification.data,
        },
    }


def pagerduty_action(notification: Notification) -> Literal["trigger", "resolve"] | None:
    if notification.name in _OPENS:
        return "trigger"
    return "resolve" if notification.name in _CLOSES else None


def dedup_key(notification: Notification) -> str:
    """Return a key that is equal for the events that open and close one incident."""
    if notification.event.startswith("alert."):
        return f"mainspring:alert:{notification.data.get('rule')}:{notification.data.get('key')}"[:255]
    if notification.name in ("late", "missed", "slow"):
        return f"mainspring:{notification.event}:{notification.data.get('execution_id')}"
    return f"mainspring:job:{notification.data.get('job_id') or notification.data.get('channel')}"[:255]
