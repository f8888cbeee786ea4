"""After a day's work, no token, secret or password is in the database or in any log, in any spelling."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import httpx2
import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from mainspring.domain.errors import MainspringError
from mainspring.domain.task import PythonTask
from tests.support.http_receiver import receiving, reply
from tests.support.pages import NAVIGATION, sign_in
from tests.support.processes import Dev, dev, until_async

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ALLOWED_FILES = re.compile(r"/(token|secret-keys?|[^/]*keys?)$|/(postgres|pgdata|pg|data)/")
"""Files for their owner only: the token of the installation, the master keys, and the database, which is dumped."""
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


TABLES = (
    "SELECT relname::text FROM pg_class WHERE relnamespace = 'mainspring'::regnamespace AND relkind IN ('r', 'p')"
    " AND NOT relispartition"
)


async def dumped(url: str) -> bytes:
    """Every row of every table as text. Binary columns are hexadecimal there, which is one of the spellings."""
    connection = await asyncpg.connect(url, server_settings={"search_path": "mainspring"})
    try:
        parts = []
        for (table,) in await connection.fetch(TABLES):
            parts += [row for (row,) in await connection.fetch(f'SELECT t::text FROM "{table}" t')]
        # jsonb and text escape quotes and backslashes in rows; columns of these types are also read as they are.
        columns = await connection.fetch(
            f"SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'mainspring'"
            f" AND data_type IN ('jsonb', 'text', 'ARRAY') AND table_name IN ({TABLES})"
        )
        for table, column in columns:
            rows = await connection.fetch(f'SELECT "{column}"::text FROM "{table}" WHERE "{column}" IS NOT NULL')
            parts += [text for (text,) in rows]
        return "\n".join(parts).encode()
    finally:
        await connection.close()


def logged(folder: Path) -> bytes:
    """Every file that the processes wrote, except those that are for their owner only."""
    files = [f for f in folder.rglob("*") if f.is_file() and not ALLOWED_FILES.search(str(f)) and f.name != "app.py"]
    assert any(f.name == "screen.txt" for f in files)
    return b"\n".join(f.read_bytes() for f in files)


def test_the_search_finds_every_spelling() -> None:
    """The search itself: whatever surrounds a value, it is found."""
    for what, value in PLANTED.items():
        plain = value.encode()
        for text in (
            plain,
            base64.b64encode(b"ab" + plain + b"cd"),
            base64.b64encode(b"x" + plain),
            base64.urlsafe_b64encode(plain),
            quote(value, safe="").encode(),
            plain.hex().encode(),
            plain.hex().upper().encode(),
        ):
            assert found_in(b"before " + text + b" after", {what: value}), (what, text)
    assert found_in(b"nothing of this kind", PLANTED) == []


async def test_nothing_secret_is_in_the_database_or_the_logs(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "app.py").write_text(JOB)
    async with dev(tmp_path, "--allow-net", "127.0.0.0/8") as running, running.client() as client:
        planted = PLANTED | {"first token": running.token}
        planted |= await people(running, client)
        async with receiving(lambda got: reply(body=got.headers.get("authorization", "").encode())) as receiver:
            await work(client, receiver.url())
            await settings(client, receiver.url())
        stored = await dumped(running.database_url)
        assert b"keyed" in stored and "•••".encode() in stored, "the dump has what happened"
    assert found_in(stored, planted) == []
    assert found_in(logged(tmp_path), planted) == []


async def people(running: Dev, client: AsyncClient) -> dict[str, str]:
    """Tokens, rotated and revoked ones, a browser session, and strangers."""
    await client.create_user(wire.NewUser(name="ann", role="operator"))
    ann = await client.issue_token(wire.NewToken(name="laptop", user="ann"))
    rotated = await client._transport.request(
        wire.IssuedToken, "POST", f"/api/v1/tokens/{ann.token_id}/rotate", body={"overlap": "1h"}
    )
    link = (await client.login_link()).path.partition("k=")[2]
    url = f"http://127.0.0.1:{running.port}"
    async with httpx2.AsyncClient(base_url=url, headers=NAVIGATION, timeout=60) as browser:
        assert (await sign_in(browser, PLANTED["wrong token"])).status_code == 401
        assert (await sign_in(browser, ann.token)).status_code == 303
        cookie = browser.cookies["mainspring_session"]
        await browser.get("/login", params={"k": link})
        keyed = {"Authorization": f"Bearer {running.token}", "Idempotency-Key": "once"}
        made = await browser.post("/api/v1/tokens", headers=keyed, json={"name": "keyed", "role": "viewer"})
        await browser.get("/api/v1/jobs", headers={"Authorization": f"Bearer {PLANTED['wrong token']}"})
    return {
        "user's token": ann.token,
        "rotated token": rotated.token,
        "login link": link,
        "cookie": cookie,
        "token in a kept response": made.json()["token"],
    }


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
