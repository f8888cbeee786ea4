"""Files that executions leave: up, down, caps and the end of their time."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest

from mainspring import wire
from mainspring.api.auth import COOKIE, issue_token
from mainspring.domain import artifact
from mainspring.domain.errors import NotFound
from mainspring.embedded.server import EmbeddedServer
from tests.conftest import Cluster, clone, started
from tests.support.remote_worker import Remote, remote

pytestmark = pytest.mark.anyio

LIMIT = 100_000


@pytest.fixture(scope="module")
async def cluster(postgres: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    folder = str(tmp_path_factory.mktemp("store"))
    async with started(await clone(postgres), artifact_store=folder, artifact_bytes=LIMIT) as cluster:
        yield cluster


def stored(cluster: Cluster) -> list[Path]:
    return [path for path in Path(cluster.server.config.artifact_store).rglob("*") if path.is_file()]


async def content(cluster: Cluster, execution: object, name: str) -> bytes:
    async with cluster.client() as client:
        return b"".join([piece async for piece in client.artifact(str(execution), name)])


SHELL = """
cd $MAINSPRING_ARTIFACTS; mkdir report
echo "attempt $MAINSPRING_ATTEMPT" > report/a.txt; head -c 50000 /dev/zero > zeros
[ $MAINSPRING_ATTEMPT = 2 ]
"""

FUNCTIONS = """
import mainspring as ms

@ms.job()
def leave():
    context = ms.context()
    context.artifact("text.txt", "straße")
    context.artifact("sub/bytes", b"\\x00\\xff")
    context.artifact("copy.py", __import__("pathlib").Path(__file__))
    try:
        context.artifact("../up", "x")
    except ValueError as error:
        return str(error)
"""


@pytest.mark.requirement(66)
async def test_a_program_leaves_files_and_people_get_them(cluster: Cluster) -> None:
    """Also of attempts that fail; a further attempt replaces what it writes anew."""
    queue = f"q{uuid4().hex}"
    retries = {"max": 1, "base": "10ms", "jitter": "none"}
    task = {"kind": "shell", "shell": True, "argv": [SHELL]}
    async with cluster.client() as client, cluster.worker(queues=(queue,)):
        await client.create_job({"name": queue, "task": task, "queue": queue, "retries": retries})
        done = await client.wait((await client.trigger(queue)).execution_id, timeout_s=30)
        assert (done.state, done.attempt) == ("succeeded", 2)
        files = (await client.artifacts(done.execution_id)).items
    assert [(f.name, f.bytes, f.attempt) for f in files] == [("report/a.txt", 10, 2), ("zeros", 50_000, 2)]
    assert await content(cluster, done.execution_id, "report/a.txt") == b"attempt 2\n"
    assert files[1].sha256 == hashlib.sha256(bytes(50_000)).hexdigest()
    assert len(stored(cluster)) == 2, "what was replaced is gone"


async def test_a_function_leaves_files(cluster: Cluster, tmp_path: Path) -> None:
    queue = f"q{uuid4().hex}"
    source = tmp_path / "leaving.py"
    source.write_text(FUNCTIONS)
    async with cluster.client() as client, cluster.worker(queues=(queue,), modules=(str(source),)):
        task = {"kind": "python", "function": "leaving:leave"}
        await client.create_job({"name": queue, "task": task, "queue": queue})
        done = await client.wait((await client.trigger(queue)).execution_id, timeout_s=30)
    assert (done.state, done.result) == ("succeeded", "'../up' has a part that is empty, '.' or '..'")
    assert await content(cluster, done.execution_id, "text.txt") == "straße".encode()
    assert await content(cluster, done.execution_id, "sub/bytes") == b"\x00\xff"
    assert await content(cluster, done.execution_id, "copy.py") == FUNCTIONS.encode()


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("ln -s /etc/passwd $MAINSPRING_ARTIFACTS/x", "x is not a regular file"),
        ("ln -s /etc $MAINSPRING_ARTIFACTS/x", "x is not a regular file"),
        ("head -c 200000 /dev/zero > $MAINSPRING_ARTIFACTS/x", "larger than 100,000 bytes"),
        ("for i in $(seq 101); do echo > $MAINSPRING_ARTIFACTS/$i; done", "at most 100 artifacts"),
        ("printf x > \"$MAINSPRING_ARTIFACTS/$(printf 'a\\033b')\"", "control characters"),
    ],
)
async def test_a_success_that_can_not_keep_its_files_is_none(cluster: Cluster, script: str, why: str) -> None:
    queue = f"q{uuid4().hex}"
    before = stored(cluster)
    task = {"kind": "shell", "shell": True, "argv": [script]}
    async with cluster.client() as client, cluster.worker(queues=(queue,)):
        await client.create_job({"name": queue, "task": task, "queue": queue, "retries": {"max": 3}})
        done = await client.wait((await client.trigger(queue)).execution_id, timeout_s=30)
    assert (done.state, done.attempt) == ("failed", 1)
    assert done.error is not None and done.error.startswith("artifact not stored") and why in done.error
    assert stored(cluster) == before


class Sender:
    """Uploads by hand, as a worker would not."""

    def __init__(self, cluster: Cluster, worker: Remote, given: wire.Assignment, http: httpx2.AsyncClient) -> None:
        self.query = {
            "session_id": str(worker.session_id),
            "execution_id": str(given.execution_id),
            "attempt": str(given.attempt),
        }
        self._http = http

    async def send(self, name: str, data: bytes = b"x", **other: str) -> tuple[int, str]:
        answer = await self._http.post(
            "/api/v1/worker/artifacts", params=self.query | {"name": name} | other, content=data
        )
        return answer.status_code, "" if answer.status_code == 204 else answer.json()["code"]


@pytest.fixture
async def sender(cluster: Cluster) -> AsyncIterator[Sender]:
    queue = f"q{uuid4().hex}"
    headers = {"Authorization": f"Bearer {cluster.worker_token}"}
    async with (
        cluster.client() as client,
        remote(cluster, queue=queue) as worker,
        httpx2.AsyncClient(base_url=cluster.url, headers=headers, trust_env=False) as http,
    ):
        await client.create_job({"name": queue, "task": {"kind": "noop"}, "queue": queue})
        await client.trigger(queue)
        (given,) = (await worker.poll()).executions
        yield Sender(cluster, worker, given, http)
        await worker.tell(given)


@pytest.mark.parametrize("name", ["../up", "/etc/passwd", "a\0b", "a/../../b", "", "a//b"])
async def test_names_that_lead_elsewhere_are_refused(cluster: Cluster, sender: Sender, name: str) -> None:
    before = stored(cluster)
    assert await sender.send(name) == ((400, "bad_query") if "\0" in name else (422, "invalid"))
    assert stored(cluster) == before


async def test_only_who_runs_an_attempt_leaves_files_there(cluster: Cluster, sender: Sender) -> None:
    before = stored(cluster)
    assert await sender.send("x", attempt="2") == (409, "not_held")
    assert await sender.send("x", execution_id=str(uuid4())) == (409, "not_held")
    assert await sender.send("x", session_id=str(uuid4())) == (409, "session_ended")
    assert await sender.send("x", session_id="nobody") == (400, "bad_query")
    assert stored(cluster) == before


async def test_an_execution_has_so_much_room(cluster: Cluster, sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await sender.send("a", bytes(LIMIT + 1)) == (413, "too_large")
    assert await sender.send("a", bytes(60_000)) == (204, "")
    before = stored(cluster)
    assert await sender.send("b", bytes(60_000)) == (413, "too_large")
    assert stored(cluster) == before
    assert await sender.send("a", bytes(LIMIT)) == (204, ""), "in the place of the first"
    monkeypatch.setattr("mainspring.intake.artifacts.MOST_FILES", 1)
    assert await sender.send("c", b"") == (413, "too_large")
    assert artifact.MOST_FILES == 100


async def test_another_tenant_sees_nothing_and_browsers_show_nothing(cluster: Cluster, sender: Sender) -> None:
    await sender.send("page.html", b"<script>alert(1)</script>")
    path = f"/api/v1/executions/{sender.query['execution_id']}/artifacts"
    async with cluster.database.transaction() as connection:
        other = await connection.fetchval("INSERT INTO tenants (name) VALUES ($1) RETURNING tenant_id", uuid4().hex)
        stranger = await issue_token(connection, tenant=other, name="stranger", scopes=("admin",))
    async with httpx2.AsyncClient(base_url=cluster.url, trust_env=False) as http:
        for where in (path, f"{path}/content?name=page.html"):
            answer = await http.get(where, headers={"Authorization": f"Bearer {stranger}"})
            assert answer.status_code == 404
        own = {"Authorization": f"Bearer {cluster.token}"}
        answer = await http.get(f"{path}/content?name=page.html", headers=own)
        assert answer.headers["content-disposition"].startswith("attachment")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in answer.headers["content-security-policy"]
        assert (await http.get(f"{path}/content?name=none", headers=own)).status_code == 404


async def test_files_whose_time_is_over_are_gone(cluster: Cluster, sender: Sender) -> None:
    await sender.send("old")
    await sender.send("young")
    execution = sender.query["execution_id"]
    async with cluster.database.connection() as connection:
        await connection.execute("UPDATE artifacts SET expires_at = db_now() WHERE name = 'old'")
    before = len(stored(cluster))
    assert await cluster.context.artifacts.prune() == 1
    assert len(stored(cluster)) == before - 1
    async with cluster.client() as client:
        assert [f.name for f in (await client.artifacts(execution)).items] == ["young"]
    with pytest.raises(NotFound):
        await content(cluster, execution, "old")


async def test_an_upload_that_is_cut_off_leaves_nothing(cluster: Cluster, sender: Sender) -> None:
    """The worker dies in the middle of a file."""
    before = stored(cluster)
    host, port = cluster.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    query = "&".join(f"{name}={value}" for name, value in sender.query.items())
    head = f"POST /api/v1/worker/artifacts?{query}&name=half HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"
    writer.write(f"{head}Authorization: Bearer {cluster.worker_token}\r\n\r\n".encode() + bytes(500))
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert await sender.send("whole") == (204, "")
    async with cluster.client() as client:
        assert [f.name for f in (await client.artifacts(sender.query["execution_id"])).items] == ["whole"]
    assert len([p for p in stored(cluster) if p.suffix != ".part"]) == len(before) + 1


async def test_the_page_of_an_execution_lists_its_files(cluster: Cluster, sender: Sender) -> None:
    await sender.send("a & b.txt", os.urandom(1234))
    cookie = await cluster.context.auth.cookie_for_token(cluster.token)
    async with httpx2.AsyncClient(base_url=cluster.url, trust_env=False) as http:
        page = await http.get(f"/executions/{sender.query['execution_id']}", headers={"Cookie": f"{COOKIE}={cookie}"})
        assert "a &amp; b.txt" in page.text and "1,234" in page.text
        link = f"/api/v1/executions/{sender.query['execution_id']}/artifacts/content?name=a%20%26%20b.txt"
        assert link in page.text
        got = await http.get(link, headers={"Cookie": f"{COOKIE}={cookie}"})
    assert len(got.content) == 1234
