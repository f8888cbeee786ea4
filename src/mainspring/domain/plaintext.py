"""Finds values that look like secrets where a reference belongs: by the name, the format, or the randomness. Pure.

A heuristic: it refuses what is pasted by mistake, with a way to say that the value is no secret. It does not prove that
a definition contains none.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from mainspring.domain.errors import Problem
from mainspring.domain.plugin import PluginTask
from mainspring.domain.secret import references
from mainspring.domain.task import HttpTask, PythonTask

MAX_CHECKED_CHARS = 10_000
MIN_RANDOM_CHARS, MAX_RANDOM_CHARS = 24, 200
MIN_ENTROPY = 4.0
"""Bits per character. Random base64 of 24 characters has about 4.3, words and identifiers below 3.9."""
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_ENDINGS = frozenset(
    ("password", "passwd", "passphrase", "pwd", "secret", "token", "apikey", "credential", "credentials", "pat")
)
_KEYS = frozenset(
    ("api", "access", "account", "auth", "encryption", "master", "private", "secret", "service", "shared", "signing")
)
_HEADERS = frozenset(("authorization", "proxy-authorization", "cookie", "x-api-key", "x-auth-token"))
_FORMATS = (
    ("an AWS access key", re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")),
    ("a GitHub token", re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{50})")),
    ("a GitLab token", re.compile(r"\bglpat-[A-Za-z0-9_-]{20}")),
    ("a Slack token", re.compile(r"\bxox[abeprs]-[A-Za-z0-9-]{10}")),
    ("a Stripe key", re.compile(r"\b[rs]k_live_[A-Za-z0-9]{16}")),
    ("a Google API key", re.compile(r"\bAIza[0-9A-Za-z_-]{35}")),
    ("a JSON web token", re.compile(r"\beyJ[A-Za-z0-9_-]{8,2000}+\.eyJ[A-Za-z0-9_-]{8,2000}+\.")),
    ("a private key", re.compile(r"-----BEGIN (?:[A-Z]{1,20} ){0,3}PRIVATE KEY")),
    ("a token of Mainspring", re.compile(r"\bms_[A-Za-z0-9_-]{43}\b")),
    ("a webhook secret", re.compile(r"\bwhsec_[A-Za-z0-9+/=]{24}")),
    ("a URL with a password", re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@{}]{0,200}+:[^\s/@{}]{1,200}+@")),
)


def looks_secret(name: str, value: Any, *, header: bool = False) -> str | None:
    """Return why a value looks like a secret, without a part of it; None if it does not."""
    if not isinstance(value, str) or not value or references(value):
        return None
    text = value[:MAX_CHECKED_CHARS]
    for what, pattern in _FORMATS:
        if pattern.search(text):
            return f"the value looks like {what}"
    if "{{" in text:
        return None
    if (header and name.lower() in _HEADERS) or _names_secret(name):
        return "the name says that the value is a secret" if _is_value(text) else None
    return "the value looks random" if _is_random(text) else None


def plaintext_problems(spec: Any, before: Any = None) -> list[Problem]:
    """Return the values of a job that look like secrets, unless it allows them or had them before."""
    had = {} if before is None else dict(_values(before))
    found = []
    for key, value in _values(spec):
        if key in spec.allow_plaintext or had.get(key) == value:
            continue
        field, _, name = key.partition(".")
        if (reason := looks_secret(name, value, header=field == "headers")) is not None:
            found.append(_problem(_pointer(spec.task, field, name), key, reason))
    return found


def given_plaintext(given: Mapping[str, Any], allowed: Collection[str], secret: Collection[str]) -> list[Problem]:
    """Return the parameters of an execution that look like secrets."""
    found = []
    for name, value in given.items():
        if name in secret or f"params.{name}" in allowed:
            continue
        if (reason := looks_secret(name, value)) is not None:
            found.append(_problem(f"/params/{name}", f"params.{name}", reason))
    return found


def _values(spec: Any) -> Iterator[tuple[str, Any]]:
    task = spec.task
    if isinstance(task, HttpTask):
        yield from ((f"headers.{name}", value) for name, value in task.headers.items())
    elif isinstance(task, PythonTask):
        yield from ((f"args.{name}", value) for name, value in task.args.items())
    elif isinstance(task, PluginTask):
        yield from ((f"settings.{name}", value) for name, value in task.settings.items())
        if isinstance(env := task.settings.get("env"), dict):
            yield from ((f"env.{name}", value) for name, value in env.items())
    else:
        yield from ((f"env.{name}", value) for name, value in getattr(task, "env", {}).items())
    for name, param in spec.params.items():
        if not param.secret:
            yield f"params.{name}", param.default


def _problem(pointer: str, key: str, reason: str) -> Problem:
    hint = (
        f"store it with `mainspring secrets set NAME` and write secret://NAME; if it is no secret, add {key!r} to"
        " allow_plaintext of the job"
    )
    return Problem(pointer, f"{reason}, and would be stored and shown as it is", hint)


def _pointer(task: Any, field: str, name: str) -> str:
    if field == "params":
        return f"/params/{name}/default"
    return f"/task/settings/env/{name}" if isinstance(task, PluginTask) and field == "env" else f"/task/{field}/{name}"


def _names_secret(name: str) -> bool:
    """Whether the last words of a name say secret: DB_PASSWORD and apiKey do, max_tokens and TOKEN_FILE do not."""
    words = [word.lower() for word in _WORDS.findall(name[:200])]
    if not words:
        return False
    if words[-1] in _ENDINGS:
        return True
    return words[-1] == "key" and len(words) > 1 and words[-2] in _KEYS


def _is_value(text: str) -> bool:
    """Whether a text can be a secret at all: not a switch, a number, a path or a placeholder."""
    return len(text) >= 4 and text.lower() not in ("true", "false", "none", "null") and not text.startswith(("/", "$"))


def _is_random(text: str) -> bool:
    if not MIN_RANDOM_CHARS <= len(text) <= MAX_RANDOM_CHARS or not re.fullmatch(r"[A-Za-z0-9+=_-]++", text):
        return False
    classes = sum(any(test(c) for c in text) for test in (str.islower, str.isupper, str.isdigit))
    counts = Counter(text).values()
    entropy = -sum(n / len(text) * math.log2(n / len(text)) for n in counts)
    return classes == 3 and entropy >= MIN_ENTROPY
