"""Secrets: names, where each may go, and the references that stand for their values. Pure.

`secret://name` is a whole value; `{{secret:name}}` is a part of one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import msgspec

from mainspring.domain.bounds import Name
from mainspring.domain.errors import Problem

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
SCHEME = "secret://"
PREFIX = "secret:"
"""Of the name in a template: `{{secret:name}}`."""
MIN_VALUE_CHARS = 4
"""A shorter value could not be masked: it would mask ordinary words."""
MAX_VALUE_CHARS = 64_000
MAX_PATTERNS = 100
MAX_REFERENCES = 20
"""Secrets that one task may use."""
_PLACE = re.compile(r"\{\{([^{}]*+)\}\}")
_JOB = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,127})?\*?\Z")
_QUEUE = re.compile(r"(?:[a-z0-9][a-z0-9_-]{0,62})?\*?\Z")
_HOST = re.compile(r"(?:\*\.)?[A-Za-z0-9_](?:[A-Za-z0-9_.:-]{0,251})\Z")

Patterns = Annotated[list[Name], msgspec.Meta(max_length=MAX_PATTERNS)]


class Destinations(msgspec.Struct, frozen=True):
    """Where a secret may go.

    `jobs` are names, or prefixes with `*`; without one, no job gets it. The same holds for `channels` and `triggers`.
    `queues` are names or prefixes; none: every queue. `hosts` are names, or `*.` and a domain: with one, only `http`
    tasks and channels that call these hosts get the secret, because no other task can be held to a host.
    """

    jobs: Sequence[str] = ()
    queues: Sequence[str] = ()
    hosts: Sequence[str] = ()
    channels: Sequence[str] = ()
    triggers: Sequence[str] = ()

    def refusal(self, *, job: str, queue: str, hosts: Sequence[str] | None) -> str | None:
        """Return why a job may not use the secret, or None. `hosts`: those that the task calls; None: unknown."""
        if not _matches_any(job, self.jobs):
            return f"may not be used by the job {job!r}; it names {_listed(self.jobs, 'no job')}"
        if self.queues and not _matches_any(queue, self.queues):
            return f"may not be used in the queue {queue!r}; it names {_listed(self.queues, '')}"
        if not self.hosts:
            return None
        if hosts is None:
            return f"may only go to {_listed(self.hosts, '')}: only http tasks with a fixed host can use it"
        return next((refused for host in hosts if (refused := self.host_refusal(host))), None)

    def channel_refusal(self, channel: str, host: str | None) -> str | None:
        """Return why a channel may not use the secret, or None. `host`: the one that it calls; None: not known yet."""
        if not _matches_any(channel, self.channels):
            return f"may not be used by the channel {channel!r}; it names {_listed(self.channels, 'no channel')}"
        return None if host is None or not self.hosts else self.host_refusal(host)

    def trigger_refusal(self, trigger: str) -> str | None:
        """Return why a trigger may not verify signatures with the secret, or None."""
        if not _matches_any(trigger, self.triggers):
            return f"may not be used by the trigger {trigger!r}; it names {_listed(self.triggers, 'no trigger')}"
        return None

    def host_refusal(self, host: str) -> str | None:
        """Return why the secret may not go to a host, or None."""
        wanted = host.lower()
        for given in self.hosts:
            if given.startswith("*.") and wanted.endswith(given[1:].lower()):
                return None
            if wanted == given.lower():
                return None
        return f"may not go to the host {host!r}; it names {_listed(self.hosts, 'no host')}"


def destination_problems(to: Destinations) -> list[Problem]:
    """Return a problem for each pattern that cannot match anything."""
    found = []
    for field, given, matches, hint in (
        ("jobs", to.jobs, _JOB.match, "a job's name, or a prefix such as etl-*"),
        ("queues", to.queues, _QUEUE.match, "a queue's name, or a prefix such as gpu-*"),
        ("hosts", to.hosts, _HOST.match, "a host such as api.example.com, or *.example.com; without scheme and path"),
        ("channels", to.channels, _QUEUE.match, "a channel's name, or a prefix such as ops-*"),
        ("triggers", to.triggers, _JOB.match, "a trigger's name, or a prefix such as github-*"),
    ):
        for at, text in enumerate(given):
            if not text or not matches(text):
                found.append(Problem(f"/{field}/{at}", f"{text!r} is not a pattern of {field}", hint))
    return found


def name_problems(name: str) -> list[Problem]:
    if NAME.match(name):
        return []
    return [Problem("/name", f"{name!r} is not the name of a secret", "letters, digits, '.', '_', '-'; at most 100")]


def value_problems(value: str) -> list[Problem]:
    """Return what is wrong with a value, without a part of it."""
    if len(value) < MIN_VALUE_CHARS:
        message = f"the value has {len(value)} characters; at least {MIN_VALUE_CHARS} are needed"
        return [Problem("/value", message, "a shorter value cannot be masked in logs")]
    if "\0" in value:
        return [Problem("/value", "the value contains a NUL character", "encode it, for example in base64")]
    return []


def whole_reference(text: str) -> str | None:
    """Return the name in `secret://name`; None for another text."""
    return text[len(SCHEME) :] if text.startswith(SCHEME) else None


def references(text: str) -> list[str]:
    """Return the secrets that a text refers to, in order; none for most texts."""
    if "secret:" not in text:
        return []
    if (name := whole_reference(text)) is not None:
        return [name]
    return [place.removeprefix(PREFIX) for place in _places(text) if place.startswith(PREFIX)]


def all_references(texts: Iterable[str]) -> list[str]:
    """Return the secrets that texts refer to, each once."""
    return list(dict.fromkeys(name for text in texts for name in references(text)))


def as_template(text: str) -> str:
    """Return a whole reference as the template that means the same; another text unchanged."""
    name = whole_reference(text)
    return text if name is None else f"{{{{{PREFIX}{name}}}}}"


def _places(text: str) -> Iterator[str]:
    return (match.strip() for match in _PLACE.findall(text))


def _matches_any(name: str, patterns: Sequence[str]) -> bool:
    return any(name.startswith(p[:-1]) if p.endswith("*") else name == p for p in patterns)


def _listed(patterns: Sequence[str], none: str) -> str:
    return ", ".join(patterns[:5]) + (", …" if len(patterns) > 5 else "") if patterns else none
