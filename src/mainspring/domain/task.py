"""HTTP and Python tasks, validated when a job is saved."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec

from mainspring.domain.bounds import Count, Duration, Line, Name, Texts, Values
from mainspring.domain.duration import MAX_S, parse_duration
from mainspring.domain.errors import Problem
from mainspring.domain.template import Path, render, template_problems, templates

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]

FUNCTION = re.compile(r"(?:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*|[A-Za-z0-9][A-Za-z0-9._-]{0,127})\Z")
MAX_FUNCTION_CHARS = 256
HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
EXPECT = re.compile(r"[1-5]xx\Z|([1-5]\d\d)-([1-5]\d\d)\Z")
_AUTHORITY = re.compile(r"(?:[^/?#{]|\{\{[^{}]*\}\}|\{)*")
_TRAILING = re.compile(r"(?<=[A-Za-z0-9.])(\{\{[^{}]*\}\})\Z")
_HOST = re.compile(r"[A-Za-z0-9._-]+(?::[0-9]+)?\Z")
MAX_REDIRECTS = 10
MAX_BODY_BYTES = 10_000_000
# Headers that frame the message, and headers that identify Mainspring to the receiver.
RESERVED_HEADERS = frozenset(("host", "content-length", "transfer-encoding", "connection", "idempotency-key"))
RESERVED_HEADER_PREFIX = "mainspring-"


class HttpTask(msgspec.Struct, frozen=True, tag="http", tag_field="kind", forbid_unknown_fields=True):
    """Calls a URL. A text `body` is sent as it is, any other value as JSON.

    `expect` lists the statuses that count as success: 204, "2xx", "200-299". At most `follow_redirects` redirects are
    followed; each target is checked like the first URL.
    """

    url: Annotated[str, msgspec.Meta(min_length=1, max_length=8000)]
    method: Method = "GET"
    headers: Texts = {}
    body: Any = None
    expect: Annotated[tuple[Count | Name, ...], msgspec.Meta(min_length=1, max_length=50)] = ("2xx",)
    timeout: Duration | None = None
    follow_redirects: Annotated[int, msgspec.Meta(ge=0, le=MAX_REDIRECTS)] = 0
    max_bytes: Annotated[int, msgspec.Meta(ge=0, le=MAX_BODY_BYTES)] = 1_000_000


class PythonTask(msgspec.Struct, frozen=True, tag="python", tag_field="kind", forbid_unknown_fields=True):
    """Calls a function that the worker has loaded: "app.jobs:report", or its declared name.

    The function receives `args` by name, overridden by the parameters of the execution.
    """

    function: Line
    args: Values = {}


def expects(task: HttpTask, status: int) -> bool:
    """Whether a status counts as success."""
    for wanted in task.expect:
        if isinstance(wanted, int):
            fits = status == wanted
        elif wanted.endswith("xx"):
            fits = status // 100 == int(wanted[0])
        else:
            low, _, high = wanted.partition("-")
            fits = int(low) <= status <= int(high)
        if fits:
            return True
    return False


def template_strings(task: HttpTask | PythonTask) -> Iterator[tuple[str | Path, str]]:
    """The strings that may contain templates, with their JSON pointers."""
    if isinstance(task, PythonTask):
        yield from templates(task.args, "/task/args")
        return
    yield "/task/url", task.url
    yield from templates(task.headers, "/task/headers")
    yield from templates(task.body, "/task/body")


def task_problems(task: HttpTask | PythonTask) -> list[Problem]:
    """Return problems that the types alone do not catch."""
    found = _http_problems(task) if isinstance(task, HttpTask) else _python_problems(task)
    found.extend(template_problems(template_strings(task)))
    return found


def url_problem(url: str) -> str | None:
    """Return what is wrong with a URL after its templates are resolved, or None."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        return f"{url!r} is not a URL: {error}"
    if parts.scheme not in ("http", "https"):
        return f"{url!r} can't be called: only http and https can"
    if not host or port == 0:
        return f"{url!r} names no host"
    if parts.username is not None or parts.password is not None:
        return "a URL with a user or password in it is not called: use a header"
    return None


def host_problem(url: str, values: Mapping[str, Any]) -> str | None:
    """Return why the values of templates would send a call to another host than the URL says, or None.

    A URL that begins with a template leaves the host to its value. Everywhere else a value is part of a host name or
    port, or it comes after them.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or "{{" in scheme:
        return None
    host = _AUTHORITY.match(rest)[0]  # type: ignore[index]  # matches any text, also an empty one
    if (path := _TRAILING.search(host)) is not None:  # https://example.org{{params.path}}
        host = host[: path.start(1)]
        value = render(path[1], values)
        if value and value[0] not in "/?#":
            return f"{value[:80]!r} would become part of the host {host}: put a / after the host"
    if "{{" in host and not _HOST.match(render(host, values)):
        return f"{render(host, values)[:200]!r} is not a host, which the URL has from a template"
    return None


def _http_problems(task: HttpTask) -> list[Problem]:
    found: list[Problem] = []
    # If a template provides the scheme or host, the attempt checks the resolved URL.
    if not task.url.startswith("{{") and (wrong := url_problem(re.sub(r"\{\{[^{}]*\}\}", "0", task.url))):
        found.append(Problem("/task/url", wrong, "such as https://example.org/hook"))
    for name, value in task.headers.items():
        if not HEADER.match(name) or any(c in value for c in "\r\n\0"):
            found.append(Problem("/task/headers", f"{name!r} is not a header", "a token, and one line of text"))
        elif name.lower() in RESERVED_HEADERS or name.lower().startswith(RESERVED_HEADER_PREFIX):
            found.append(Problem("/task/headers", f"{name!r} is set by Mainspring", "leave it out"))
    if task.body is not None and task.method in ("GET", "HEAD", "OPTIONS"):
        found.append(Problem("/task/body", f"{task.method} has no body", 'say "method": "POST"'))
    for place, wanted in enumerate(task.expect):
        if not (EXPECT.match(wanted) if isinstance(wanted, str) else 100 <= wanted <= 599):
            found.append(Problem(f"/task/expect/{place}", f"{wanted!r} is not a status", '204, "2xx" or "200-299"'))
    if task.timeout is not None:
        try:
            seconds = parse_duration(task.timeout)
        except ValueError as error:
            found.append(Problem("/task/timeout", str(error), "seconds, 90s, 10m, 1h30m or PT3H"))
        else:
            if seconds > MAX_S:
                found.append(Problem("/task/timeout", f"{task.timeout!r} is too long", "at most 1,000 years"))
            if seconds <= 0:
                found.append(Problem("/task/timeout", f"{task.timeout!r} is too short", "give a positive duration"))
    return found


def _python_problems(task: PythonTask) -> list[Problem]:
    found = []
    if len(task.function) > MAX_FUNCTION_CHARS:
        message = f"the function has {len(task.function):,} characters; at most {MAX_FUNCTION_CHARS} are accepted"
        found.append(Problem("/task/function", message, "shorten the name of the module or the function"))
    elif not FUNCTION.match(task.function):
        found.append(
            Problem("/task/function", f"{task.function!r} is not a function", 'such as "app.jobs:report", or its name')
        )
    for name in task.args:
        if not name.isidentifier():
            found.append(Problem("/task/args", f"{name!r} can't be the name of an argument", "letters, digits, '_'"))
    return found
