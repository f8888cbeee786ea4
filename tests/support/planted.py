"""Secrets that tests plant in every place that takes one, and the search for them in any spelling."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.errors import MainspringError
from mainspring.domain.task import PythonTask
from tests.support.processes import until_async

PLANTED = {
    "shell secret": "Xq7-shell-Vm2kRt9!sesame",
    "http secret": "Xq7-http/Vm2kRt9+sesame=",
    "python secret": "Xq7 python Vm2kRt9 sesame&",
    "rotated secret": "Xq7-before-rotation-Vm2kRt9",
    "deleted secret": "Xq7-deleted-Vm2kRt9-sesame",
    "channel secret": "whsec_" + base64.b64encode(b"Xq7-channel-Vm2kRt9-sesame-32by").decode(),
    "chat address": "https://hooks.slack.example.com/T0/B0/Xq7ChatVm2kRt9",
    "mail password": "Xq7-mail-Vm2kRt9-sesame",
    "trigger secret": "Xq7-trigger-Vm2kRt9-sesame",
    "wrong token": "ms_Xq7wrongVm2kRt9sesame",
    "refused plaintext": "ghp_" + "Xq7Vm2kRt9" * 4,
}
JOB = """
import mainspring as ms

@ms.job
def keyed(key: str) -> dict:
    print("key", key)
    raise RuntimeError(f"cannot use {key}")
"""
SCRIPT = (
    'echo "plain $KEY"; printf %s "$KEY" | base64; printf %s "$KEY" | od -An -tx1 | tr -d " \\n";'
    ' echo "$KEY" >&2; exit 3'
)


def spellings(value: str) -> Iterator[tuple[str, bytes]]:
    """How a value may be written: as it is, as part of base64 at any offset, in a URL, in hexadecimal."""
    plain = value.encode()
    yield "plain", plain
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + plain)
        yield "base64", encoded[4 if offset else 0 : len(encoded) // 4 * 4 - 4]
        yield "base64url", base64.urlsafe_b64encode(b"\0" * offset + plain)[4 if offset else 0 : -4]
    if quote(value, safe="") != value:
        yield "url-encoded", quote(value, safe="").encode()
        yield "url-encoded", quote(value, safe="/").encode()
    yield "hexadecimal", plain.hex().encode()
    yield "hexadecimal", plain.hex().upper().encode()


def found_in(text: bytes, planted: dict[str, str]) -> list[str]:
    return sorted({f"{what}, {how}" for what, value in planted.items() for how, s in spellings(value) if s in text})


async def work(client: AsyncClient, url: str) -> None:
    """Executions of three kinds that get secrets, print them in many ways, and fail."""
    for name in ("shell", "http", "python"):
        await client.put_secret(name, wire.SecretSpec(value=PLANTED[f"{name} secret"], jobs=["*"]))
    await client.put_secret("rotated", wire.SecretSpec(value=PLANTED["rotated secret"], jobs=["*"]))
    await client.put_secret("rotated", wire.SecretSpec(value="Xq7-after", jobs=["*"]))
    await client.put_secret("deleted", wire.SecretSpec(value=PLANTED["deleted secret"], jobs=["*"]))
    await client.delete_secret("deleted")

    async def is_declared() -> bool:
        return any(job.name == "keyed" for job in (await client.jobs()).items)

    await until_async("the worker to declare its function", is_declared, within_s=60)
    declared = (await client.job("keyed")).spec.task
    assert isinstance(declared, PythonTask)
    tasks: dict[str, dict[str, Any]] = {
        "shell": {"kind": "shell", "argv": [SCRIPT], "shell": True, "env": {"KEY": "secret://shell"}},
        "http": {"kind": "http", "url": url, "headers": {"Authorization": "Bearer {{secret:http}}"}},
        "python": {"kind": "python", "function": declared.function, "args": {"key": "secret://python"}},
    }
    for name, task in tasks.items():
        await client.create_job({"name": f"uses-{name}", "task": task, "retries": {"max": 1, "base": "0s"}})
        ended = await client.wait((await client.trigger(f"uses-{name}")).execution_id, timeout_s=120)
        assert ended.state == ("succeeded" if name == "http" else "failed"), (name, ended.error)
    plain = {"kind": "shell", "argv": ["x"], "env": {"TOKEN": PLANTED["refused plaintext"]}}
    with pytest.raises(MainspringError):
        await client.create_job({"name": "refused", "task": plain})


async def settings(client: AsyncClient, url: str) -> None:
    """Channels and triggers with secrets; one channel is sent to."""

    async def post(path: str, body: dict[str, Any]) -> None:
        await client._transport.send("POST", path, body=body)

    hook = {"kind": "webhook", "url": url, "secret": PLANTED["channel secret"]}
    mail = {
        "kind": "smtp", "host": "127.0.0.1", "port": 1, "sender": "a@example.com", "to": ["b@example.com"],
        "username": "a", "password": PLANTED["mail password"],
    }  # fmt: skip
    for name, target in (("hook", hook), ("chat", {"kind": "slack", "url": PLANTED["chat address"]}), ("mail", mail)):
        await post("/api/v1/channels", {"name": name, "target": target, "events": ["execution.failed"]})
    await client.wait((await client.trigger("uses-shell")).execution_id, timeout_s=120)
    source = {"kind": "webhook", "scheme": "github"}
    await post(
        "/api/v1/triggers", {"name": "push", "secret": PLANTED["trigger secret"], "source": source, "job": "uses-shell"}
    )
