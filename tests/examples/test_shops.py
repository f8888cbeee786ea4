"""The two web shops of the examples: real frameworks, real HTTP, and a worker that sends the receipts."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import asyncpg
import pytest

from mainspring.client import AsyncClient
from tests.conftest import Cluster
from tests.support.processes import free_port, until_async

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parents[2] / "examples"
WITHIN_S = 60.0


@pytest.fixture(scope="module")
async def shop(cluster: Cluster) -> AsyncIterator[Cluster]:
    """A worker with the shop's job, and a table of orders."""
    connection = await asyncpg.connect(cluster.database.dsn)
    await connection.execute("CREATE TABLE public.orders (number serial PRIMARY KEY, address text, cents int)")
    await connection.close()
    os.environ["PYTHONPATH"] = str(EXAMPLES)
    try:
        async with cluster.worker(modules=("shop_jobs",), name="shop"):
            yield cluster
    finally:
        del os.environ["PYTHONPATH"]


def variables(cluster: Cluster) -> dict[str, str]:
    parts = urlsplit(cluster.database.dsn)
    query = parse_qs(parts.query)
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")},
        "PYTHONPATH": str(EXAMPLES),
        "MAINSPRING_URL": cluster.url,
        "MAINSPRING_TOKEN": cluster.token,
        "DATABASE_URL": cluster.database.dsn.replace("postgresql://", "postgresql+asyncpg://", 1),
        "DATABASE_NAME": parts.path.removeprefix("/"),
        "DATABASE_USER": parts.username or "",
        "DATABASE_PASSWORD": parts.password or "",
        "DATABASE_HOST": query["host"][0],
        "DATABASE_PORT": query["port"][0],
    }


@contextmanager
def serving(cluster: Cluster, folder: Path, *command: str) -> Iterator[Path]:
    """The web server as a process; gives the file with its output."""
    screen = folder / "screen.txt"
    with screen.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, *command], cwd=EXAMPLES, env=variables(cluster), stdout=out, stderr=subprocess.STDOUT
        )
    try:
        yield screen
    finally:
        process.terminate()
        process.wait(30)


def call(url: str, body: Any = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=WITHIN_S) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


async def listening(url: str, screen: Path) -> None:
    async def answers() -> bool:
        try:
            await asyncio.to_thread(urllib.request.urlopen, url, timeout=5)
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True

    try:
        await until_async("the web server", answers, within_s=WITHIN_S)
    except AssertionError:
        raise AssertionError(await asyncio.to_thread(screen.read_text)) from None


async def receipts(shop: Cluster) -> set[UUID]:
    async with shop.database.connection() as connection:
        return {row["execution_id"] for row in await connection.fetch("SELECT execution_id FROM all_executions")}


async def orders_and_receipts(shop: Cluster, client: AsyncClient, url: str) -> None:
    """An order gets a receipt; one that is refused leaves neither an order nor a receipt."""
    before = await receipts(shop)
    status, refused = await asyncio.to_thread(call, url, {"address": "a@example.com", "cents": -1})
    assert status == 422, refused
    status, made = await asyncio.to_thread(call, url, {"address": "a@example.com", "cents": 1250})
    assert status == 201, made
    receipt = await client.wait(made["receipt"], timeout_s=WITHIN_S, appears_s=WITHIN_S)
    assert (receipt.state, receipt.result) == ("succeeded", {"to": "a@example.com", "text": "12.50 EUR"})
    assert receipt.params["order"]["number"] == made["number"]
    assert await receipts(shop) - before == {UUID(made["receipt"])}


async def test_a_fastapi_service_submits_in_its_session(shop: Cluster, tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with serving(shop, tmp_path, "-m", "uvicorn", "shop_fastapi:app", "--port", str(port)) as screen:
        await listening(f"{url}/nothing", screen)
        async with shop.client() as client:
            await orders_and_receipts(shop, client, f"{url}/orders")
        status, quote = await asyncio.to_thread(call, f"{url}/quote?cents=99")
        assert (status, quote) == (200, {"to": "quote@example.com", "text": "0.99 EUR"})


async def test_a_django_site_submits_in_its_atomic_block(shop: Cluster, tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with serving(shop, tmp_path, "shop_django.py", "runserver", "--noreload", f"127.0.0.1:{port}") as screen:
        await listening(f"{url}/nothing", screen)
        async with shop.client() as client:
            await orders_and_receipts(shop, client, f"{url}/orders")
