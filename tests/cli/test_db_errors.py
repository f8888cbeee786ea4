"""What `mainspring db` says when the database or the disk is not as it should be: a sentence, never a traceback."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from mainspring.embedded.server import EmbeddedServer
from tests.conftest import clone
from tests.support.database_roles import server_urls
from tests.support.invoke import Invoke
from tests.support.processes import free_port

pytestmark = pytest.mark.anyio

COMMANDS = (
    ("status",),
    ("prune",),
    ("backup", "out.dump"),
    ("resume", "--gap", "skip", "--yes"),
    ("hold", "--yes"),
    ("migrate",),
)


@pytest.fixture(scope="module")
async def url(postgres: EmbeddedServer) -> str:
    return await clone(postgres)


async def refusal(invoke: Invoke, url: str, *words: str) -> tuple[int, str]:
    result = await asyncio.to_thread(invoke, "db", *words, "--database-url", url)
    assert isinstance(result.exception, SystemExit), result.output
    assert not list(Path.cwd().glob("out.dump*")), "a failed backup leaves no file"
    return result.exit_code, str(result.stderr)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
async def test_a_wrong_url_is_named(invoke: Invoke, url: str, words: tuple[str, ...]) -> None:
    parts = urlsplit(url)
    wrong = parts._replace(netloc=f"mainspring:wrong@{parts.netloc.rpartition('@')[2]}")
    found = await refusal(invoke, urlunsplit(wrong), *words)
    assert found[0] == 4 and "refuses the role" in found[1] and "MAINSPRING_DATABASE_URL" in found[1]
    found = await refusal(invoke, urlunsplit(parts._replace(path="/nope")), *words)
    assert found[0] == 3 and 'database "nope" does not exist' in found[1]
    found = await refusal(invoke, f"postgresql://mainspring@127.0.0.1:{free_port()}/mainspring", *words)
    assert found[0] == 7 and "cannot connect to the database" in found[1]


async def test_a_missing_privilege_is_named(invoke: Invoke, url: str) -> None:
    found = await refusal(invoke, server_urls(url)["tenant_database_url"], "prune")
    assert found[0] == 4 and "permission denied" in found[1] and "owns the schema" in found[1]


@pytest.fixture
async def readonly(postgres: EmbeddedServer, url: str) -> AsyncIterator[str]:
    """The database as a standby or a recovering server shows it: it accepts no writes."""
    owner = await asyncpg.connect(postgres.superuser_dsn("postgres"))
    name = urlsplit(url).path[1:]
    await owner.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    yield url
    await owner.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    await owner.close()


@pytest.mark.parametrize("words", [("prune",), ("hold", "--yes", "--recovered-to", "2026-11-18T08:00Z")])
async def test_a_server_without_writes_is_named(invoke: Invoke, readonly: str, words: tuple[str, ...]) -> None:
    found = await refusal(invoke, readonly, *words)
    assert found[0] == 5 and "accepts no writes" in found[1]


@pytest.fixture
def full_disk() -> Iterator[Path]:
    """A file system of 16 KB."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small file system")
    folder = Path(tempfile.mkdtemp(prefix="ms-full-"))
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", folder], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("a small file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)
    folder.rmdir()


async def test_a_backup_that_cannot_be_written_says_why(
    invoke: Invoke, url: str, full_disk: Path, tmp_path: Path
) -> None:
    found = await refusal(invoke, url, "backup", str(full_disk / "out.dump"))
    assert "No space left on device" in found[1] and os.listdir(full_disk) == []
    found = await refusal(invoke, url, "backup", "missing/out.dump")
    assert "cannot write the backup: No such file or directory" in found[1]
    (tmp_path / "other.dump.part").touch()
    found = await refusal(invoke, url, "backup", "other.dump")
    assert found[0] == 5 and "was interrupted" in found[1]


async def test_a_database_of_another_program_is_named(invoke: Invoke, postgres: EmbeddedServer) -> None:
    result = await asyncio.to_thread(invoke, "db", "status", "--database-url", postgres.superuser_dsn("postgres"))
    assert result.exit_code == 0 and "no schema of Mainspring" in result.stdout and "check the URL" in result.stdout
