"""Formats notifications: text for mail and chat, JSON for webhooks, Slack and PagerDuty. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote

from mainspring.domain.events import TEST

MAX_SUMMARY = 1000
"""PagerDuty accepts 1,024 characters."""
CONTINUED = "\n    "
_MENTION = re.compile(r"@(?=channel|here|everyone|all)", re.IGNORECASE)
_OPENS = ("failed", "timed_out", "lost", "firing", "late", "missed", "slow", "disabled", "test")
_CLOSES = ("succeeded", "recovered", "resolved")


@dataclass(frozen=True, slots=True)
class Notification:
    """One event as it is sent to a channel."""

    event: str
    event_id: str
    at: datetime
    data: Mapping[str, Any]
    public_url: str = ""
    """Address of the web UI; without it, a notification has no link."""

    @property
    def status(self) -> Literal["firing", "resolved"] | None:
        """Whether it reports a problem or its end; None for events that are neither."""
        if self.event in ("alert.resolved", "job.recovered"):
            return "resolved"
        return "firing" if self.event.startswith(("alert.", "job.")) and self.name in _OPENS else None

    @property
    def url(self) -> str | None:
        """The page that shows what happened."""
        return f"{self.public_url}{_path(self)}" if self.public_url else None

    @property
    def name(self) -> str:
        """The last part of the event: failed, late, firing."""
        return self.event.rpartition(".")[2]

    @property
    def severity(self) -> str:
        if self.event.startswith("alert."):
            return str(self.data.get("severity", "warning"))
        if self.event == TEST or self.name in _CLOSES or self.name in ("cancelled", "retrying", "head"):
            return "info"
        return "error" if self.name in ("failed", "timed_out", "lost") else "warning"


def _path(notification: Notification) -> str:
    data = notification.data
    if notification.event.startswith("alert."):
        return "/alerts"
    for name, folder in (("execution_id", "executions"), ("run_id", "runs"), ("job_id", "jobs")):
        if data.get(name):
            return f"/{folder}/{quote(str(data[name]), safe='')}"
    return "/channels" if data.get("channel") else "/"


def summary(notification: Notification) -> str:
    """Return a one-line summary: the subject of a mail, the text of a chat message."""
    label = f"[{notification.status.upper()}] " if notification.status else ""
    return label + _summary(notification)


def error_line(text: str) -> str:
    """Return the line of an error that names the cause: its first one, or of a traceback its last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]


def _summary(notification: Notification) -> str:
    data = notification.data
    if notification.event == TEST:
        return f"Mainspring: test notification for channel {data.get('channel')}"
    if notification.event.startswith("alert."):
        return f"{data.get('rule')}: {data.get('summary')}"
    if notification.event == "audit.head":
        return f"Audit log: entry {data.get('seq')} has the hash {data.get('hash')}"
    if notification.event == "channel.disabled":
        return f"Channel {data.get('channel')} was disabled after repeated failures: {data.get('error')}"
    return f"{data.get('job')}: {_about_job(notification)}"


def _about_job(notification: Notification) -> str:
    data = notification.data
    because = data.get("error") or data.get("reason")
    tail = f": {error_line(str(because))[:300]}" if because else ""
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


def letter(notification: Notification) -> str:
    """Return the body of a mail: the summary, the link, and all fields."""
    head = [summary(notification), *([f"Open: {notification.url}"] if notification.url else [])]
    return "\n".join(head) + "\n\n" + details(notification)


def details(notification: Notification) -> str:
    """Return all fields, one per line, for the body of a mail. Further lines of a value are indented."""
    fields = ((name, _text(value)) for name, value in notification.data.items() if value is not None)
    return "\n".join(f"{name}: {CONTINUED.join(value.splitlines())}" for name, value in fields)


def _text(value: Any) -> str:
    return ", ".join(f"{key}={item}" for key, item in value.items()) if isinstance(value, dict) else str(value)


def webhook(notification: Notification) -> dict[str, Any]:
    also = {"status": notification.status, "url": notification.url}
    known = {name: value for name, value in also.items() if value is not None}
    return {"type": notification.event, "timestamp": notification.at, **known, "data": notification.data}


def slack(notification: Notification) -> dict[str, Any]:
    glyph = {"info": "✔", "warning": "▲", "error": "✖", "critical": "✖"}[notification.severity]
    if notification.status is not None:
        glyph = {"firing": "🔴", "resolved": "🟢"}[notification.status]
    contact = [f"{name}: {notification.data[name]}" for name in ("owner", "runbook") if name in notification.data]
    text = "\n".join([f"{glyph} {_escaped(summary(notification))}", *map(_escaped, contact)])
    section = {"type": "mrkdwn", "text": text[:3000], "verbatim": True}
    blocks: list[dict[str, Any]] = [{"type": "section", "text": section}]
    if notification.url:
        label = {"type": "plain_text", "text": "Open in Mainspring"}
        blocks.append({"type": "actions", "elements": [{"type": "button", "text": label, "url": notification.url}]})
        text = f"{text}\n{_escaped(notification.url)}"  # for services that know no blocks
    return {"text": text, "parse": "none", "link_names": False, "blocks": blocks}


def _escaped(text: str) -> str:
    """Escape the three characters that Slack reads as markup, and mentions that compatible services find in text."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MENTION.sub("@\u200b", text)


def pagerduty(notification: Notification, routing_key: str) -> dict[str, Any] | None:
    """Return an event of the Events API v2; None if it neither opens nor closes an incident."""
    action = pagerduty_action(notification)
    if action is None:
        return None
    event = {"routing_key": routing_key, "event_action": action, "dedup_key": dedup_key(notification)}
    if action == "resolve":
        return event
    given = ((notification.url, "Open in Mainspring"), (notification.data.get("runbook"), "Runbook"))
    links = [{"href": address, "text": text} for address, text in given if address]
    return {
        **event,
        **({"client": "Mainspring", "client_url": notification.url} if notification.url else {}),
        **({"links": links} if links else {}),
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
