"""Tasks that call something: a URL, or a function. What is wrong with one is said when its job is saved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec

from mainspring.domain.duration import parse_duration
from mainspring.domain.errors import Problem
from mainspring.domain.template import strings, unknown_names

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]

FUNCTION = re.compile(r"(?:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*|[A-Za-z0-9][A-Za-z0-9._-]{0,127})\Z")
HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
EXPECT = re.compile(r"[1-5]xx\Z|([1-5]\d\d)-([1-5]\d\d)\Z")
MOST_REDIRECTS = 10
MOST_BYTES = 10_000_000
# Those that frame the message, and those by which a receiver knows us.
OUR_HEADERS = frozenset(("host", "content-length", "transfer-encoding", "connection", "idempotency-key"))
OUR_PREFIX = "mainspring-"


class HttpTask(msgspec.Struct, frozen=True, tag="http", tag_field="kind", forbid_unknown_fields=True):
    """Calls a URL. A `body` that is text is sent as it is, anything else as JSON.

    `expect` lists the statuses that mean success: 204, "2xx", "200-299". Redirects are followed at most
    `follow_redirects` times, each checked like the first URL.
    """

    url: Annotated[str, msgspec.Meta(min_length=1, max_length=8000)]
    method: Method = "GET"
    headers: dict[str, str] = {}
    body: Any = None
    expect: Annotated[tuple[int | str, ...], msgspec.Meta(min_length=1, max_length=50)] = ("2xx",)
    timeout: str | int | float | None = None
    follow_redirects: Annotated[int, msgspec.Meta(ge=0, le=MOST_REDIRECTS)] = 0
    max_bytes: Annotated[int, msgspec.Meta(ge=0, le=MOST_BYTES)] = 1_000_000


class PythonTask(msgspec.Struct, frozen=True, tag="python", tag_field="kind", forbid_unknown_fields=True):
    """Calls a function that the worker has loaded: "app.jobs:report", or the name it was declared under.

    It gets `args` by name, and the parameters of the execution over them.
    """

    function: str
    args: dict[str, Any] = {}


def expects(task: HttpTask, status: int) -> bool:
    """Whether a status means success."""
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


def template_strings(task: HttpTask | PythonTask) -> Iterator[tuple[str, str]]:
    """What templates are filled into, with pointers."""
    if isinstance(task, PythonTask):
        yield from strings(task.args, "/task/args")
        return
    yield "/task/url", task.url
    yield from strings(task.headers, "/task/headers")
    yield from strings(task.body, "/task/body")


def task_problems(task: HttpTask | PythonTask) -> list[Problem]:
    """Refuses what the types alone can't."""
    found = _http_problems(task) if isinstance(task, HttpTask) else _python_problems(task)
    for pointer, text in template_strings(task):
        found.extend(Problem(pointer, f"{{{{{name}}}}} is not known", hint) for name, hint in unknown_names(text))
    return found


def url_problem(url: str) -> str | None:
    """What is wrong with a URL whose templates are filled in."""
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


def _http_problems(task: HttpTask) -> list[Problem]:
    found: list[Problem] = []
    # A template may stand for the whole address; then the attempt checks what it became.
    if not task.url.startswith("{{") and (wrong := url_problem(re.sub(r"\{\{[^{}]*\}\}", "0", task.url))):
        found.append(Problem("/task/url", wrong, "such as https://example.org/hook"))
    for name, value in task.headers.items():
        if not HEADER.match(name) or any(c in value for c in "\r\n\0"):
            found.append(Problem("/task/headers", f"{name!r} is not a header", "a token, and one line of text"))
        elif name.lower() in OUR_HEADERS or name.lower().startswith(OUR_PREFIX):
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
            if seconds <= 0:
                found.append(Problem("/task/timeout", f"{task.timeout!r} is too short", "give a positive duration"))
    return found


def _python_problems(task: PythonTask) -> list[Problem]:
    found = []
    if not FUNCTION.match(task.function):
        found.append(
            Problem("/task/function", f"{task.function!r} is not a function", 'such as "app.jobs:report", or its name')
        )
    for name in task.args:
        if not name.isidentifier():
            found.append(Problem("/task/args", f"{name!r} can't be the name of an argument", "letters, digits, '_'"))
    return found
