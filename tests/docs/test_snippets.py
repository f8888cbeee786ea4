"""Every shell, Python, YAML and JSON block of the README and the documentation is executed or decoded.

Each page gets a server on a database of its own, a worker that loads the page's `jobs/` folder, and a folder to work
in. The page's blocks then run in order as one script; any command that fails, fails the page.
"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainspring.domain.job import JobSpec, NoopTask, Task
from mainspring.domain.schedule.spec import ScheduleSpec
from mainspring.embedded.server import EmbeddedServer
from mainspring.manifest import KINDS, check, documents_in, manifest_in
from tests.conftest import Cluster, clone, started
from tests.support.command_server import command_server
from tests.support.engine_servers import EngineServer, EtcdServer, KafkaServer, RedisServer, ZooKeeperServer
from tests.support.processes import free_port
from tests.support.snippets import Snippet, indented_blocks, script, snippets, write_files
from tools.tree import ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PAGES = [
    ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "ARCHITECTURE.md", "examples/README.md")
] + sorted((ROOT / "docs").rglob("*.md"))
BLOCKS = {
    page.relative_to(ROOT).as_posix(): snippets(page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8"))
    for page in PAGES
}
EXECUTED = {"bash", "python"}
DECODED = {"yaml", "json"}
SHOWN = {"text", "http", "ini", "nginx", "sql", "svg", "toml"}
"""Output, requests and unit files: read, not executed."""
MOST_SKIPPED = 44
DEFAULT_ADDRESS = "127.0.0.1:7171"
SERVERS: dict[str, tuple[type[EngineServer], str]] = {
    "docs/how-to/redis.md": (RedisServer, "127.0.0.1:6379"),
    "docs/how-to/etcd.md": (EtcdServer, "127.0.0.1:2379"),
    "docs/how-to/kafka.md": (KafkaServer, "127.0.0.1:9092"),
    "docs/how-to/zookeeper.md": (ZooKeeperServer, "127.0.0.1:2181"),
}
"""Pages that need an engine, and where they expect it."""
OTHER_PORT = "7272"
"""Of a server that a page starts."""
JOB_FIELDS = set(JobSpec.__struct_fields__)
SCHEDULE_FIELDS = set(ScheduleSpec.__struct_fields__)


def of(*languages: str) -> list[Snippet]:
    return [block for blocks in BLOCKS.values() for block in blocks if block.language in languages]


@pytest.fixture(scope="module")
async def commands(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[Path]:
    async with command_server(tmp_path_factory.mktemp("commands")) as folder:
        yield folder


@asynccontextmanager
async def environment(server: EmbeddedServer, folder: Path) -> AsyncIterator[Cluster]:
    """A server, and workers that load the page's jobs and have what pages ask for."""
    resources = {"cpu": 8000, "memory": 16 << 30, "disk": 64 << 30, "gpu": 2}
    labels = {"zone": "eu"}
    async with started(await clone(server), allow_net=("127.0.0.0/8",), watch_roots=(str(folder),)) as cluster:
        modules = (str(folder / "jobs"),) if (folder / "jobs").is_dir() else ()
        more: dict[str, Any] = {
            "modules": modules,
            "allow_net": ("127.0.0.0/8",),
            "resources": resources,
            "labels": labels,
        }
        async with cluster.worker(name="local", queues=("short", "long", "gpu", "reports"), **more):
            yield cluster


@asynccontextmanager
async def engine_of(page: str, folder: Path) -> AsyncIterator[dict[str, str]]:
    """Start the engine that a page needs; yield its address by the one that the page shows."""
    if page not in SERVERS:
        yield {}
        return
    kind, shown = SERVERS[page]
    server = kind(folder)
    await server.start()
    try:
        yield {shown: f"127.0.0.1:{server.port}"}
    finally:
        server.kill()


@pytest.mark.parametrize("page", [page for page, blocks in BLOCKS.items() if EXECUTED & {b.language for b in blocks}])
async def test_the_blocks_of_a_page_run(page: str, postgres: EmbeddedServer, commands: Path, tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    async with engine_of(page, tmp_path / "engine") as addresses:
        # The commands of other pages run in forks, which a page could not end.
        path = [] if addresses else [str(commands)]
        await run(page, postgres, tmp_path, addresses | {OTHER_PORT: str(free_port())}, path)


async def run(
    page: str, postgres: EmbeddedServer, tmp_path: Path, addresses: dict[str, str], path: Sequence[str]
) -> None:
    """Run the blocks of a page in order, with addresses replaced."""
    blocks = BLOCKS[page]
    write_files(blocks, tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    async with environment(postgres, tmp_path) as cluster:
        (tmp_path / ".mainspring").mkdir()
        (tmp_path / ".mainspring" / "token").write_text(cluster.token)
        text = script(blocks, tmp_path).replace(DEFAULT_ADDRESS, cluster.url.removeprefix("http://"))
        for shown, real in addresses.items():
            text = text.replace(shown, real)
        variables = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            text,
            cwd=tmp_path,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=variables
            | {
                "PATH": ":".join([*path, str(Path(sys.executable).parent), os.environ["PATH"]]),
                "DATABASE_URL": cluster.database.dsn,
                "MAINSPRING_URL": cluster.url,
                "MAINSPRING_TOKEN": cluster.token,
                "PYTHONPATH": str(tmp_path),
            },
        )
        output, _ = await process.communicate()
    print(output.decode(errors="replace"))
    assert process.returncode == 0, output.decode(errors="replace")


@pytest.mark.parametrize("block", of("python"), ids=str)
def test_python_blocks_parse(block: Snippet) -> None:
    ast.parse(block.text)


@pytest.mark.parametrize("block", of("yaml"), ids=str)
def test_yaml_blocks_are_valid(block: Snippet) -> None:
    documents = [document.value for document in documents_in(block.text)]
    for document in documents:
        if isinstance(document, dict) and document.get("kind") in KINDS:
            check(manifest_in(document))


@pytest.mark.parametrize("block", of("json"), ids=str)
def test_json_blocks_are_definitions(block: Snippet) -> None:
    """One value, or one value per line: a schedule, a task, a job, or some fields of a job."""
    for value in _values(block.text):
        _decode(value)


def test_a_failing_block_is_named(tmp_path: Path) -> None:
    page = '# Page\n```bash\ntrue\n```\n```bash skip="no"\nfalse\n```\n```python\nraise SystemExit(3)\n```\n'
    run = subprocess.run(["bash", "-c", script(snippets("page.md", page), tmp_path)], capture_output=True, check=False)
    assert (run.returncode, run.stderr.decode()) == (3, "failed: the block at page.md:8\n")


def test_no_block_has_an_unknown_language() -> None:
    unknown = {str(block): block.language for block in of(*{b.language for bs in BLOCKS.values() for b in bs})}
    assert {at: name for at, name in unknown.items() if name not in EXECUTED | DECODED | SHOWN} == {}


def test_code_is_fenced() -> None:
    found = {str(page.relative_to(ROOT)): indented_blocks(page.read_text(encoding="utf-8")) for page in PAGES}
    assert {page: lines for page, lines in found.items() if lines} == {}


def test_few_blocks_are_skipped() -> None:
    skipped = [block for block in of(*EXECUTED) if block.skip is not None and "runs it" not in block.skip]
    for block in skipped:
        print(f"{block}: {block.skip}")
    assert all(block.skip for block in skipped), "a skipped block needs a reason"
    assert len(skipped) <= MOST_SKIPPED, Counter(block.page for block in skipped)


def _values(text: str) -> list[Any]:
    try:
        return [json.loads(text)]
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines()]


def _decode(value: Any) -> None:
    fields = set(value) if isinstance(value, dict) else set()
    if isinstance(value, list):
        msgspec.convert(value, list[ScheduleSpec])
    elif "kind" in fields:
        msgspec.convert(value, Task)
    elif fields <= JOB_FIELDS:
        msgspec.convert({"name": "filled-in", "task": msgspec.to_builtins(NoopTask()), **value}, JobSpec)
    else:
        assert fields <= SCHEDULE_FIELDS, f"neither a schedule nor a part of a job: {value}"
        msgspec.convert(value, ScheduleSpec)
