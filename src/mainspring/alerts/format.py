"""Messages in the shapes that receivers take: a sentence for people, JSON for webhooks, Slack and PagerDuty. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from mainspring.domain.events import TEST

MOST_SUMMARY = 1000
"""PagerDuty takes 1,024 characters."""
_OPENS = ("failed", "timed_out", "lost", "firing", "late", "missed", "slow", "disabled", "test")
_CLOSES = ("succeeded", "recovered", "resolved")


@dataclass(frozen=True, slots=True)
class Note:
    """One event as it is told."""

    event: str
    event_id: str
    at: datetime
    data: Mapping[str, Any]

    @property
    def word(self) -> str:
        return self.event.rpartition(".")[2]

    @property
    def severity(self) -> str:
        if self.event.startswith("alert."):
            return str(self.data.get("severity", "warning"))
        if self.event == TEST or self.word in _CLOSES or self.word in ("cancelled", "retrying"):
            return "info"
        return "error" if self.word in ("failed", "timed_out", "lost") else "warning"


def summary(note: Note) -> str:
    """One sentence that says it all."""
    data = note.data
    if note.event == TEST:
        return f"Mainspring: a test of channel {data.get('channel')}"
    if note.event.startswith("alert."):
        return f"[{note.word}] {data.get('rule')}: {data.get('summary')}"
    if note.event == "channel.disabled":
        return f"Channel {data.get('channel')} was disabled: {data.get('error')}"
    return f"{data.get('job')}: {_about_job(note)}"


def _about_job(note: Note) -> str:
    data = note.data
    because = data.get("error") or data.get("reason")
    tail = f": {str(because)[:300]}" if because else ""
    match note.word:
        case "recovered":
            return "succeeded again"
        case "late":
            return f"the execution due at {data.get('due_at')} has not started"
        case "missed":
            return f"the fire at {data.get('fire_at')} was missed ({data.get('reason')})"
        case "slow":
            return f"took {data.get('duration_ms')} ms, usually at most {round(data.get('usual_ms') or 0)} ms"
        case "retrying":
            return f"attempt {data.get('attempt')} ended as {data.get('outcome')}, another follows{tail}"
        case "failed" if note.event == "job.failed":
            return f"{str(data.get('state')).replace('_', ' ')} after {data.get('attempt')} attempts{tail}"
        case word:
            return word.replace("_", " ") + tail


def details(note: Note) -> str:
    """Everything known, line by line, for mail."""
    return "\n".join(f"{name}: {value}" for name, value in note.data.items() if value is not None)


def webhook(note: Note) -> dict[str, Any]:
    return {"type": note.event, "timestamp": note.at, "data": note.data}


def slack(note: Note) -> dict[str, Any]:
    glyph = {"info": "✔", "warning": "▲", "error": "✖", "critical": "✖"}[note.severity]
    text = f"{glyph} {_escaped(summary(note))}"
    return {"text": text, "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": text[:3000]}}]}


def _escaped(text: str) -> str:
    """Slack reads these three characters as markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def pagerduty(note: Note, routing_key: str) -> dict[str, Any] | None:
    """An event of the Events API v2; None for what neither opens nor closes an incident."""
    action = pagerduty_action(note)
    if action is None:
        return None
    event = {"routing_key": routing_key, "event_action": action, "dedup_key": dedup_key(note)}
    if action == "resolve":
        return event
    return {
        **event,
        "payload": {
            "summary": summary(note)[:MOST_SUMMARY],
            "source": "mainspring",
            "severity": note.severity,
            "timestamp": note.at,
            "component": note.data.get("job") or note.data.get("rule") or "mainspring",
            "class": note.event,
            "custom_details": note.data,
        },
    }


def pagerduty_action(note: Note) -> Literal["trigger", "resolve"] | None:
    if note.word in _OPENS:
        return "trigger"
    return "resolve" if note.word in _CLOSES else None


def dedup_key(note: Note) -> str:
    """The same for what opens an incident and for what closes it."""
    if note.event.startswith("alert."):
        return f"mainspring:alert:{note.data.get('rule')}:{note.data.get('key')}"[:255]
    if note.word in ("late", "missed", "slow"):
        return f"mainspring:{note.event}:{note.data.get('execution_id')}"
    return f"mainspring:job:{note.data.get('job_id') or note.data.get('channel')}"[:255]
