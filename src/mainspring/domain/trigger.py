"""Triggers: events from outside that start a job or a workflow, with params mapped from the event.

A trigger has a source (what happens), an optional condition (`when`), and params: JSON values with templates such as
`{{body.ref}}`, or expressions. What they can read depends on the source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from mainspring.domain.bounds import Line, Name, Values
from mainspring.domain.channel import signing_secret_problems
from mainspring.domain.errors import MAX_PROBLEMS, Problem, clipped
from mainspring.domain.job import NAME
from mainspring.domain.secret import whole_reference
from mainspring.domain.suggestion import closest
from mainspring.domain.template import MAX_NAME_CHARS, places, templates
from mainspring.domain.topic import TopicSource, topic_problems
from mainspring.domain.watch import FilesSource, source_problems
from mainspring.domain.webhook import Dedupe, Scheme, SignatureHeaders
from mainspring.domain.workflow.condition import MOST_LENGTH, condition_problem

TriggerOutcome = Literal["succeeded", "failed", "cancelled", "any"]
DeliveryOutcome = Literal["pending", "started", "filtered", "paused", "refused"]
DELIVERY_OUTCOMES: tuple[DeliveryOutcome, ...] = ("pending", "started", "filtered", "paused", "refused")

MAX_TRIGGERS = 1_000
"""Of a tenant."""
MAX_FILE_TRIGGERS = 100
"""Triggers of a tenant that watch files: each of their looks costs the leader some time."""
MAX_TOPIC_TRIGGERS = 50
"""Triggers of a tenant that read topics: each has a connection in every scheduler process."""
MAX_EVENTS = 100
MAX_EXPRESSIONS = 100
MIN_SECRET_CHARS, MAX_SECRET_CHARS = 16, 500
MAX_OVERLAP_S = 7 * 86_400
_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}\Z")

Expression = Annotated[str, msgspec.Meta(max_length=MOST_LENGTH)]
HeaderName = Annotated[str, msgspec.Meta(max_length=64)]


class WebhookSource(
    msgspec.Struct, frozen=True, kw_only=True, tag="webhook", tag_field="kind", forbid_unknown_fields=True
):
    """A signed HTTP request. `events` are the accepted event names; without any, all are.

    `dedupe`: equal deliveries have the same id, as the sender states it, or the same body. The header names are those
    of the scheme `generic`; other schemes have their own.
    """

    scheme: Scheme = "generic"
    events: Annotated[list[Name], msgspec.Meta(max_length=MAX_EVENTS)] = []
    dedupe: Dedupe = "id"
    signature_header: HeaderName | None = None
    timestamp_header: HeaderName | None = None
    id_header: HeaderName | None = None
    event_header: HeaderName | None = None

    @property
    def names(self) -> SignatureHeaders:
        default = SignatureHeaders()
        return SignatureHeaders(
            signature=(self.signature_header or default.signature).lower(),
            timestamp=(self.timestamp_header or default.timestamp).lower(),
            delivery=self.id_header.lower() if self.id_header else None,
            event=self.event_header.lower() if self.event_header else None,
        )


class CompletionSource(
    msgspec.Struct, frozen=True, kw_only=True, tag="completion", tag_field="kind", forbid_unknown_fields=True
):
    """The end of an execution of another job or workflow (`after`), with one of the outcomes.

    `failed` includes timed out and lost executions; `any` is every end of an execution that was not skipped.
    """

    after: Name
    outcomes: Annotated[tuple[TriggerOutcome, ...], msgspec.Meta(min_length=1, max_length=4)] = ("succeeded",)

    @property
    def states(self) -> list[str]:
        """The final states that count."""
        return sorted({state for outcome in self.outcomes for state in _STATES[outcome]})


_STATES: Mapping[TriggerOutcome, tuple[str, ...]] = {
    "succeeded": ("succeeded",),
    "failed": ("failed", "timed_out", "lost"),
    "cancelled": ("cancelled",),
    "any": ("succeeded", "failed", "timed_out", "lost", "cancelled"),
}
Source = WebhookSource | CompletionSource | FilesSource | TopicSource
VALUES: Mapping[str, tuple[str, ...]] = {
    "webhook": ("body", "headers", "event", "delivery_id"),
    "completion": ("execution",),
    "files": ("file",),
    "topic": ("body", "message", "messages"),
}
"""What conditions and templates can read, by kind of the source."""


class TriggerSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What starts a job or workflow, under which condition (`when`, CEL), and with which params.

    `params` are JSON values with templates such as `{{body.ref}}`; `expressions` are CEL expressions by parameter.
    """

    source: Source
    job: Name
    when: Expression | None = None
    params: Values = {}
    expressions: Annotated[dict[Name, Expression], msgspec.Meta(max_length=MAX_EXPRESSIONS)] = {}
    description: Line = ""


class TriggerSecrets(msgspec.Struct, frozen=True, omit_defaults=True):
    """The signing secrets of a webhook: after a rotation, the previous one is valid until an instant."""

    current: str | None = None
    previous: str | None = None
    previous_until_s: float = 0.0

    def active(self, now_s: float) -> list[str]:
        """The secrets with which a request may be signed."""
        found = [] if self.current is None else [self.current]
        return [*found, self.previous] if self.previous is not None and now_s < self.previous_until_s else found

    def rotated(self, secret: str, *, now_s: float, overlap_s: float) -> TriggerSecrets:
        previous = self.current if overlap_s > 0 else None
        return TriggerSecrets(secret, previous, now_s + overlap_s if previous is not None else 0.0)


def kind_of(spec: TriggerSpec) -> str:
    return str(spec.source.__struct_config__.tag)


def trigger_problems(name: str, spec: TriggerSpec) -> list[Problem]:
    """What is wrong with a trigger, as far as the definition alone shows it."""
    found = []
    if not NAME.match(name):
        found.append(Problem("/name", f"{name!r} is not a trigger name", "letters, digits, '.', '_', '-'; at most 128"))
    found += _source_problems(spec.source)
    known = VALUES[kind_of(spec)]
    expressions = {"/when": spec.when, **{f"/expressions/{key}": text for key, text in spec.expressions.items()}}
    for pointer, text in expressions.items():
        if text is not None and (problem := condition_problem(text, frozenset(known))) is not None:
            found.append(Problem(pointer, problem, f"it can read {', '.join(known)}"))
    for both in sorted(spec.params.keys() & spec.expressions.keys()):
        found.append(Problem(f"/expressions/{both}", f"params has {both!r} as well", "remove one of them"))
    found += _template_problems(spec.params, known)
    return found[:MAX_PROBLEMS]


def secret_problem(secret: str, source: Source) -> Problem | None:
    """What is wrong with a signing secret that a user has given. A reference has its value checked when it is used."""
    if whole_reference(secret) is not None:
        return None
    if isinstance(source, WebhookSource) and source.scheme == "standard":
        return next((Problem("/secret", p.message, p.hint) for p in signing_secret_problems(secret)), None)
    if not MIN_SECRET_CHARS <= len(secret) <= MAX_SECRET_CHARS or not secret.isascii() or not secret.isprintable():
        hint = "leave it out to have one generated"
        limits = f"{MIN_SECRET_CHARS} to {MAX_SECRET_CHARS} printable ASCII characters"
        return Problem("/secret", f"a secret must have {limits}", hint)
    return None


def _source_problems(source: Source) -> list[Problem]:
    if isinstance(source, FilesSource):
        return source_problems(source)
    if isinstance(source, TopicSource):
        return topic_problems(source)
    if not isinstance(source, WebhookSource):
        return []
    headers = {
        "signature_header": source.signature_header,
        "timestamp_header": source.timestamp_header,
        "id_header": source.id_header,
        "event_header": source.event_header,
    }
    found = []
    for field, value in headers.items():
        if value is None:
            continue
        if source.scheme != "generic":
            message = f"the scheme {source.scheme} has its own headers"
            found.append(Problem(f"/source/{field}", message, "leave it out, or use the scheme generic"))
        elif not _HEADER.match(value):
            hint = "letters, digits and '-'; at most 64"
            found.append(Problem(f"/source/{field}", f"{clipped(value, 100)!r} is not a header name", hint))
    if source.names.signature == source.names.timestamp:
        found.append(Problem("/source/timestamp_header", "it is also the signature's header", "name another one"))
    if source.events and source.scheme == "generic" and source.event_header is None:
        found.append(Problem("/source/events", "event_header is missing", "name the header that has the event"))
    return found


def _template_problems(params: Mapping[str, Any], known: tuple[str, ...]) -> list[Problem]:
    found = []
    for pointer, text in templates(dict(params), "/params"):
        for name in places(text):
            root = name.partition(".")[0]
            if root not in known:
                close = closest(root, known)
                hint = f"did you mean {close}?" if close else f"it can read {', '.join(known)}"
                found.append(Problem(str(pointer), f"{{{{{clipped(name, MAX_NAME_CHARS)}}}}} is not known", hint))
                if len(found) >= MAX_PROBLEMS:
                    return found
    return found
