"""After a day's work, no token, secret or password is in the database or in any log, in any spelling."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from urllib.parse import quote, urlsplit

import asyncpg
import httpx2
import pytest

from mainspring import wire
from mainspring.client import AsyncClient
from tests.support.http_receiver import receiving, reply
from tests.support.pages import NAVIGATION, sign_in
from tests.support.planted import JOB, PLANTED, found_in, settings, work
from tests.support.processes import Dev, dev

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ALLOWED_FILES = re.compile(r"/(token|[^/]*keys?|pg-([^/]*-)?password)$|/(postgres|pgdata|pg|data)/")
"""Files for their owner only: the installation's token, master keys, passwords, and the database, which is dumped."""
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
    every = [f for f in folder.rglob("*") if f.is_file() and f.name != "app.py"]
    files = [f for f in every if not ALLOWED_FILES.search(str(f))]
    assert {f.stat().st_mode & 0o077 for f in every if f not in files} == {0}, "readable by others"
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
        planted |= {"database password": urlsplit(running.database_url).password or ""}
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
