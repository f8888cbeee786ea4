"""Looks into a real S3-compatible server: versions, order, bounds, and a server that cannot be reached."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import from_url

from mainspring.backends import watched_store
from mainspring.backends.watched_places import WatchedPlaces
from mainspring.backends.watched_store import WatchedStore
from mainspring.domain.file_pattern import FilePattern
from mainspring.domain.watch import CannotLook, Look
from mainspring.store.db import Database
from mainspring.testing.clock import VirtualClock
from tests.support.inbox import Inbox
from tests.support.object_store_server import ObjectStoreServer
from tests.support.processes import until_async

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
PLACE = "s3://inbox/in"


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory, anyio_backend: object) -> AsyncIterator[ObjectStoreServer]:
    server = ObjectStoreServer(tmp_path_factory.mktemp("weed"))
    try:
        await server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture
async def store(server: ObjectStoreServer, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The watched prefix, empty; also through the environment of this process, as that of a server."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    store = from_url(PLACE)

    async def answers() -> bool:
        try:
            await obstore.put_async(store, "first", b"x")
        except obstore.exceptions.BaseError:  # its parts start one after another
            return False
        return True

    await until_async("the store accepts an object", answers, within_s=60)
    async for page in obstore.list(store):
        await obstore.delete_async(store, [key["path"] for key in page])
    return store


def paths(found: Look) -> list[str]:
    return [file.path for file in found.files]


async def test_matching_objects_in_order_with_their_etags(store: Any) -> None:
    for key in ("b.csv", "a.csv", "a.txt", "sub/c.csv"):
        await obstore.put_async(store, key, b"abc")
    watched = WatchedStore(PLACE)
    found = await watched.look(FilePattern("**/*.csv"), after=None)
    assert (paths(found), found.next_after) == (["a.csv", "b.csv", "sub/c.csv"], None)
    first = found.files[0]
    assert first.size == 3 and first.etag == first.version and '"' not in first.version
    await obstore.put_async(store, "a.csv", b"abcd")
    again = (await watched.look(FilePattern("*.csv"), after=None)).files[0]
    assert again.version != first.version
    assert paths(await WatchedStore("s3://inbox").look(FilePattern("in/*.csv"), after=None)) == ["in/a.csv", "in/b.csv"]


async def test_a_look_reads_a_bounded_number_of_keys_and_the_next_continues(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_store, "PAGE", 2)
    monkeypatch.setattr(watched_store, "MAX_KEYS", 2)
    for key in ("a", "b", "c", "d", "e"):
        await obstore.put_async(store, key, b"x")
    watched, after, seen = WatchedStore(PLACE), None, []
    for _ in range(3):
        found = await watched.look(FilePattern("[ace]"), after=after)
        seen.append(paths(found))
        after = found.next_after
    assert (seen, after) == ([["a"], ["c"], ["e"]], None)


async def test_an_object_starts_one_execution_for_each_version(
    store: Any, fresh: Database, virtual: VirtualClock, tmp_path: Path
) -> None:
    inbox = Inbox(fresh, virtual, tmp_path)
    inbox.roots = [PLACE]
    await inbox.clock.set(datetime(2000, 1, 1, tzinfo=UTC))  # before the objects
    await inbox.job()
    await inbox.watch(place=PLACE, params={"url": "{{file.url}}", "etag": "{{file.etag}}"})
    await obstore.put_async(store, "a.csv", b"abc")
    for _ in range(3):
        await inbox.look(later_s=30)
    (first,) = await inbox.executions()
    assert first.params["url"] == f"{PLACE}/a.csv"
    await obstore.put_async(store, "a.csv", b"abcd")
    for _ in range(2):
        await inbox.look(later_s=30)
    _, second = await inbox.executions()
    assert second.params["etag"] != first.params["etag"]


@pytest.mark.parametrize("why", ["wrong secret", "no bucket", "no server"])
async def test_a_store_that_cannot_be_read_says_why(
    store: Any, server: ObjectStoreServer, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    place = PLACE
    if why == "wrong secret":
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    elif why == "no bucket":
        place = "s3://nothing"
    else:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    texts = set()
    for _ in range(2):
        with pytest.raises(CannotLook) as error:
            await WatchedPlaces().look(place, root=place, pattern=FilePattern("*"), after=None, within_s=30)
        texts.add(str(error.value))
    (text,) = texts
    assert text.startswith(f"cannot read {place}: "), text
    assert server.secret not in text and "another-secret" not in text
