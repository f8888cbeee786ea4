"""Plants values through every way that a secret can take, and searches for them in all that can be read."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import UUID

import httpx2
import pytest

from mainspring import wire
from mainspring.api.app import endpoints
from mainspring.client import AsyncClient
from mainspring.domain.channel import PagerDutyTarget, SlackTarget, WebhookTarget
from mainspring.domain.errors import Invalid
from mainspring.domain.masking import MASK
from mainspring.domain.trigger import WebhookSource
from mainspring.embedded.server import EmbeddedServer
from mainspring.web.app import every_page
from mainspring.worker.output import CHUNK_BYTES
from tests.conftest import Cluster, clone, started
from tests.support.http_receiver import Receiver, receiving, reply
from tests.support.pages import NAVIGATION, sign_in
from tests.support.webhook_sender import github

pytestmark = pytest.mark.anyio

WAYS = (
    "env",
    "header",
    "param",
    "default",
    "provider",
    "plain-env",
    "plain-param",
    "routing",
    "slack",
    "trigger",
    "rotated",
)
VALUES = {way: f"Pl4nted-{way}-c0rrect-horse" for way in WAYS}
HOOK_SECRET = "whsec_" + base64.b64encode(b"Pl4nted-hook-c0rrect-horse-battery").decode()
_PART = re.compile(r"\{\w+\}")


def spellings(value: str) -> Iterator[str]:
    """A value as a text may contain it: plain, in hexadecimal, and in base64 at each offset without its ends."""
    yield value
    yield value.encode().hex()
    for offset in range(3):
        coded = base64.b64encode(b"x" * offset + value.encode()).decode().rstrip("=")
        yield coded[4:-4]


def planted_in(text: str) -> set[str]:
    values = {**VALUES, "hook": HOOK_SECRET, "hook-key": "Pl4nted-hook-c0rrect-horse-battery"}
    return {way for way, value in values.items() if any(spelling in text for spelling in spellings(value))}


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """Answers with what it got, so that the values come back."""
    async with receiving(lambda got: reply("200 OK", f"{got.line} {got.headers} {got.body!r}".encode())) as receiver:
        yield receiver


@pytest.fixture
async def collector() -> AsyncIterator[Receiver]:
    """Gets the spans of server and worker."""
    async with receiving(lambda _: reply(content_type="application/x-protobuf")) as receiver:
        yield receiver


@pytest.fixture
async def planted(
    postgres: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collector: Receiver
) -> AsyncIterator[Cluster]:
    monkeypatch.setenv("APP_PLANTED", VALUES["provider"])
    file = tmp_path / "providers.toml"
    file.write_text("[env]\nkind = 'environment'\nallow = { default = ['APP_*'] }\n")
    url = await clone(postgres)
    spans = collector.url("")
    async with started(url, allow_net=("127.0.0.1",), secret_providers=str(file), otlp_endpoint=spans) as cluster:
        yield cluster


async def plant_in_jobs(client: AsyncClient, receiver: Receiver) -> None:
    for way in ("env", "header", "param", "default"):
        await client.put_secret(way, wire.SecretSpec(value=VALUES[way], jobs=["planted-*"]))
    await client.put_secret("provider", wire.SecretSpec(provider="env", path="APP_PLANTED", jobs=["planted-*"]))
    # Each value at the border of a chunk, in base64, in an error, in progress and in a checkpoint.
    script = (
        f'head -c {CHUNK_BYTES - 9} /dev/zero | tr "\\0" .; printf "%s" "$A"; echo;'
        ' printf "x%s" "$A" | base64 -w0; echo;'
        ' printf "%s" "$A" | od -An -tx1 -v | tr -d " \\n"; echo "10% $A" > "$MAINSPRING_PROGRESS";'
        ' echo "\\"$A\\"" > "$MAINSPRING_CHECKPOINT"; echo "length ${#A}"; echo "broken by $A" >&2; exit 3'
    )
    for way, env in (("env", "secret://env"), ("provider", "{{secret:provider}}"), ("param", "{{params.key}}")):
        task = {"kind": "shell", "argv": [script], "shell": True, "env": {"A": env}}
        params = {"key": {"secret": True, "default": "secret://default"}} if way == "param" else {}
        await client.create_job({"name": f"planted-{way}", "task": task, "params": params, "retries": {"max": 0}})
    headers = {"Authorization": "Bearer {{secret:header}}"}
    task = {"kind": "http", "url": receiver.url("/call"), "headers": headers}
    await client.create_job({"name": "planted-header", "task": task})
    shell = {"kind": "shell", "argv": ["true"], "env": {"DB_PASSWORD": VALUES["plain-env"]}}
    with pytest.raises(Invalid, match="secret://") as refused:
        await client.create_job({"name": "planted-plain", "task": shell})
    assert planted_in(str(refused.value)) == set()
    with pytest.raises(Invalid, match="takes a reference") as refused:
        await client.trigger("planted-param", wire.RunNow(params={"key": VALUES["plain-param"]}))
    assert planted_in(str(refused.value)) == set()


async def plant_in_channels(client: AsyncClient, receiver: Receiver) -> None:
    await client.put_secret("slack", wire.SecretSpec(value=receiver.url(f"/{VALUES['slack']}"), channels=["slack"]))
    for name, target in (
        ("hook", WebhookTarget(receiver.url("/hook"), HOOK_SECRET)),
        ("pager", PagerDutyTarget(VALUES["routing"], receiver.url("/pager"))),
        ("slack", SlackTarget("secret://slack")),
    ):
        made = await client.add_channel(wire.NewChannel(name=name, target=target, events=["execution.failed"]))
        tested = await client.test_channel(name)
        assert tested.delivered and planted_in(str((made, tested))) == set()


async def plant_in_a_trigger(cluster: Cluster, client: AsyncClient) -> None:
    source = WebhookSource(scheme="github")
    new = wire.NewTrigger(name="planted", job="planted-header", source=source, secret=VALUES["trigger"])
    made = await client.add_trigger(new)
    rotated = await client.rotate_trigger("planted", secret=VALUES["rotated"], overlap="1h")
    assert planted_in(str((made, rotated))) == set()
    async with httpx2.AsyncClient(base_url=cluster.url) as sender:
        for number, (secret, status) in enumerate(
            ((VALUES["trigger"], 200), (VALUES["rotated"], 200), ("another-signing-secret", 401))
        ):
            body = json.dumps({"n": number}).encode()
            assert made.path is not None
            answer = await sender.post(made.path, content=body, headers=github(secret, body, delivery=f"d-{number}"))
            assert answer.status_code == status and planted_in(answer.text) == set()


async def run_all(client: AsyncClient) -> list[UUID]:
    """Run every job; each must have had its value."""
    ended = []
    for job, params in (
        ("planted-env", None),
        ("planted-provider", None),
        ("planted-header", None),
        ("planted-param", {"key": "secret://param"}),
        ("planted-param", None),
    ):
        made = await client.trigger(job, wire.RunNow(params=params))
        execution = await client.wait(made.execution_id, timeout_s=60)
        assert planted_in(str(execution)) == set()
        if job != "planted-header":
            assert execution.state == "failed" and f"broken by {MASK}" in (execution.error or ""), execution
        ended.append(made.execution_id)
    return ended


async def tables(cluster: Cluster) -> AsyncIterator[tuple[str, str]]:
    """Every row of every table, and each log as one text, so that a value across chunks is seen."""
    async with cluster.database.connection() as connection:
        for (table,) in await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'mainspring'"):
            for (row,) in await connection.fetch(f'SELECT t::text FROM mainspring."{table}" t'):
                yield table, row
        found = await connection.fetch(
            "SELECT execution_id, string_agg(data, ''::bytea ORDER BY attempt, seq) AS text FROM log_chunks GROUP BY 1"
        )
        for row in found:
            yield f"log of {row['execution_id']}", row["text"].decode(errors="replace")


async def read(http: httpx2.AsyncClient, path: str) -> str:
    async with http.stream("GET", path) as answer:
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            return ""
        return (await answer.aread()).decode(errors="replace")


def addresses(paths: Iterator[str], executions: list[UUID]) -> Iterator[str]:
    """Each path, with the names and ids of what was planted in its places."""
    refs = {
        "jobs": ["planted-env", "planted-param", "planted-provider", "planted-header"],
        "executions": [str(execution) for execution in executions],
        "channels": ["hook", "pager", "slack"],
        "triggers": ["planted"],
        "secrets": ["env", "provider", "slack"],
        "tenants": ["default"],
    }
    for path in paths:
        noun = next((part for part in path.split("/") if part in refs), None)
        if not _PART.search(path):
            yield path
        elif noun is not None and "{file}" not in path:
            yield from (_PART.sub(ref, path) for ref in refs[noun])


@pytest.mark.requirement(140)
async def test_a_planted_value_is_found_nowhere(
    planted: Cluster, receiver: Receiver, collector: Receiver, capfd: pytest.CaptureFixture[str]
) -> None:
    async with planted.client() as client:
        await plant_in_jobs(client, receiver)
        await plant_in_channels(client, receiver)
        await plant_in_a_trigger(planted, client)
        async with planted.worker(allow_net=("127.0.0.0/8",), otlp_endpoint=collector.url("")):
            executions = await run_all(client)
        exported = await client.export_tenant("default")
        rotated = await client.rotate_secret_key()
        assert planted_in(str((exported, rotated, await client.doctor()))) == set()
    calls = " ".join(f"{got.line} {got.headers} {got.body!r}" for got in receiver.got)
    for way in ("header", "slack", "routing"):
        assert VALUES[way] in calls, "the receivers did get the values"
    spans = [got.body.decode(errors="replace") for got in collector.got]
    assert any(f"broken by {MASK}" in text for text in spans), "the collector did get errors"
    found: list[tuple[str, set[str]]] = [("span", planted_in(text)) for text in spans]
    async for place, text in tables(planted):
        found.append((place, planted_in(text)))
    headers = {"Authorization": f"Bearer {planted.token}"}
    api = addresses((e.path for e in endpoints() if e.method == "GET"), executions)
    async with httpx2.AsyncClient(base_url=planted.url, headers=headers, timeout=30) as http:
        found += [(path, planted_in(await read(http, path))) for path in [*api, "/metrics"]]
    pages = addresses((page.path for page in every_page() if page.get is not None), executions)
    async with httpx2.AsyncClient(base_url=planted.url, headers=NAVIGATION, timeout=30) as browser:
        await sign_in(browser, planted.token)
        found += [(path, planted_in(await read(browser, path))) for path in pages]
    printed = capfd.readouterr()
    found.append(("log lines", planted_in(printed.out + printed.err)))
    assert len(found) > 200 and [place for place in found if place[1]] == []


@pytest.mark.requirement(140)
def test_the_search_finds_what_it_searches_for() -> None:
    value = VALUES["env"]
    coded = base64.b64encode(f"user:{value}!".encode()).decode()
    for text in (f"a {value} b", f"b {coded}", value.encode().hex(), str({"k": value})):
        assert planted_in(text) == {"env"}
    assert planted_in(value[:-6]) == set()
