"""A real HTTP server with scripted responses that records its requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import msgspec

from mainspring import wire
from mainspring.codec import encode

JOB_ID = UUID("01930000-0000-7000-8000-000000000001")
EXECUTION_ID = UUID("0193a4c1-2b4d-8a1f-a000-000000000001")
T0 = datetime(2026, 11, 15, 12, 0, 5, tzinfo=UTC)


@dataclass
class Asked:
    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


@dataclass
class Reply:
    """A response; `stream` is sent in pieces, then the connection is closed."""

    body: Any = b""
    status: int = 200
    content_type: str = "application/json"
    stream: Iterable[bytes] | None = None


Script = Reply | list[Reply] | Callable[[Asked], Reply]


@dataclass
class Scripted:
    """`on` scripts the response of a route; of a list, each is used once and the last one stays."""

    url: str
    asked: list[Asked] = field(default_factory=list)
    scripts: dict[tuple[str, str], Script] = field(default_factory=dict)

    def on(self, method: str, path: str, script: Script) -> None:
        self.scripts[method, path] = script

    def last(self, method: str = "", path: str = "") -> Asked:
        return [a for a in self.asked if method in ("", a.method) and path in ("", a.path)][-1]

    def answer(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        script = self.scripts.get((asked.method, asked.path))
        if script is None:
            return problem(404, "not_found", f"nothing is scripted for {asked.method} {asked.path}")
        if isinstance(script, list):
            return script.pop(0) if len(script) > 1 else script[0]
        return script(asked) if callable(script) else script


def problem(status: int, code: str, detail: str, errors: Iterable[dict[str, str]] = ()) -> Reply:
    document = {"type": "about:blank", "title": "No", "status": status, "detail": detail, "code": code}
    return Reply({**document, "errors": list(errors)}, status, "application/problem+json")


def events(*pieces: bytes) -> Reply:
    return Reply(content_type="text/event-stream", stream=pieces)


def event(kind: str, data: Any, id_: str = "") -> bytes:
    return f"id: {id_}\nevent: {kind}\ndata: {encode(data).decode()}\n\n".encode()


@contextmanager
def serving() -> Iterator[Scripted]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handling)
    server.daemon_threads = True
    script = Scripted(f"http://127.0.0.1:{server.server_port}")
    server.script = script  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handling(BaseHTTPRequestHandler):
    def handle_any(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.command, parts.path, parse_qs(parts.query), headers, body)
        reply = self.server.script.answer(asked)  # type: ignore[attr-defined]
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.content_type)
        self.end_headers()
        content = reply.body if isinstance(reply.body, bytes) else encode(reply.body)
        for piece in [content] if reply.stream is None else reply.stream:
            self.wfile.write(piece)
            self.wfile.flush()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

    def log_message(self, format: str, *args: Any) -> None:
        pass


def execution(**changes: Any) -> wire.Execution:
    """One that was due at T0, started 3 ms later and succeeded after 6 ms."""
    values: dict[str, Any] = {
        "execution_id": EXECUTION_ID, "job_id": JOB_ID, "job": "hello", "version": 1, "state": "succeeded",
        "trigger": "fire", "queue": "short", "priority": 5, "attempt": 1, "fire_at": T0, "due_at": T0,
        "queued_at": T0, "started_at": T0 + timedelta(milliseconds=3),
        "finished_at": T0 + timedelta(milliseconds=9), "duration_ms": 6, "exit_code": 0, "worker": "local",
        "cancelling": False, "reason": None, "error": None, "result": None, "params": None,
        "created_by": None, "fires": 1,
    }  # fmt: skip
    return wire.Execution(**{**values, **changes})


def running(**changes: Any) -> wire.Execution:
    values = {"state": "running", "finished_at": None, "duration_ms": None, "exit_code": None}
    return execution(**{**values, **changes})


def job(spec: dict[str, Any] | None = None, **changes: Any) -> wire.Job:
    """`hello`, which echoes every five seconds."""
    plain = {"name": "hello", "task": {"kind": "shell", "argv": ["echo", "hi"]}, "schedule": {"every": "5s"}}
    spec = plain if spec is None else spec
    values: dict[str, Any] = {
        "job_id": str(JOB_ID), "name": spec["name"], "version": 1, "state": "active", "spec": spec,
        "schedule_description": "every 5 seconds" if spec.get("schedule") else None,
        "next_fire_at": T0 if spec.get("schedule") else None,
        "last": [], "pause_reason": None, "created_at": T0, "created_by": "me", "updated_at": T0,
    }  # fmt: skip
    return msgspec.convert({**values, **changes}, wire.Job)


def fires(*, notes: Iterable[str] = ()) -> wire.Fires:
    instants = [T0 + timedelta(seconds=5 * n) for n in range(3)]
    return wire.Fires(description="every 5 seconds", timezone="UTC", fires=instants, notes=list(notes))
