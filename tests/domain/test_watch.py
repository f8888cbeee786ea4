"""Sources that watch files: what is refused, which roots allow a place, and when a file has arrived."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from mainspring.domain.errors import Invalid
from mainspring.domain.watch import (
    CannotLook,
    FileOutcome,
    FilesSource,
    FoundFile,
    KnownFile,
    file_values,
    read_roots,
    root_of,
    source_problems,
    verdict,
)

NOW = datetime(2026, 11, 18, 12, 0, 0, 500_000, tzinfo=UTC)
SOURCE = FilesSource(place="/data/in", settle="10s")
STORE = FilesSource(place="s3://bucket/in")


def found(version: str = "v1", modified_at: datetime = NOW) -> FoundFile:
    return FoundFile("a.csv", 3, modified_at, version)


def judged(
    known: KnownFile | None,
    *,
    source: FilesSource = SOURCE,
    file: FoundFile | None = None,
    ignore_before: datetime | None = None,
) -> str:
    return verdict(file or found(), known, source=source, trigger_version=2, ignore_before=ignore_before, now=NOW)


def known(outcome: FileOutcome, *, version: str = "v1", ago_s: float = 10, decided_for: int | None = 2) -> KnownFile:
    return KnownFile(version, outcome, decided_for, NOW - timedelta(seconds=ago_s))


def test_a_file_arrives_when_it_was_unchanged_for_the_settle_time() -> None:
    assert judged(None) == "new"
    assert judged(known("seen", ago_s=9.9)) == "settling"
    assert judged(known("seen", ago_s=10)) == "arrived"
    assert judged(known("seen", version="v0")) == "new", "another version settles again"
    assert judged(known("started", version="v0")) == "new"


def test_an_object_arrives_when_it_appears() -> None:
    assert judged(None, source=STORE) == "arrived"
    assert judged(known("started", version="v0"), source=STORE) == "arrived"


@pytest.mark.parametrize("outcome", ["started", "ignored", "filtered", "refused"])
def test_a_decided_version_is_done(outcome: FileOutcome) -> None:
    assert judged(known(outcome)) == "done"


def test_what_started_nothing_is_decided_again_after_an_edit_or_a_pause() -> None:
    assert judged(known("filtered", decided_for=1)) == judged(known("refused", decided_for=1)) == "arrived"
    assert judged(known("paused")) == "arrived"
    assert judged(known("ignored", decided_for=1)) == judged(known("started", decided_for=1)) == "done"


def test_files_from_before_the_trigger_exist_already() -> None:
    old = found(modified_at=NOW - timedelta(seconds=2))
    assert judged(None, file=old, ignore_before=NOW) == "existing"
    assert judged(None, ignore_before=NOW) == "new", "the same second: stores have whole seconds"
    assert judged(known("seen", version="v0"), file=old, ignore_before=NOW) == "new", "it changed since"
    assert judged(None, file=old) == "new"


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"place": "inbox"}, "/source/place"),
        ({"place": "/data/../etc"}, "/source/place"),
        ({"place": "//data"}, "/source/place"),
        ({"place": "/data\n"}, "/source/place"),
        ({"place": "file:///data"}, "/source/place"),
        ({"place": "s3://B"}, "/source/place"),
        ({"place": "s3://user:password@bucket/x"}, "/source/place"),
        ({"place": "s3://bucket/a/../b"}, "/source/place"),
        ({"place": "s3://bucket//a"}, "/source/place"),
        ({"pattern": "/x"}, "/source/pattern"),
        ({"interval": "1s"}, "/source/interval"),
        ({"interval": "2d"}, "/source/interval"),
        ({"interval": "soon"}, "/source/interval"),
        ({"settle": "-1s"}, "/source/settle"),
        ({"settle": "2h"}, "/source/settle"),
    ],
)
def test_sources_that_are_refused(fields: dict[str, str], pointer: str) -> None:
    (problem,) = source_problems(msgspec.convert({"kind": "files", "place": "/data", **fields}, FilesSource))
    assert problem.pointer == pointer and problem.hint


@pytest.mark.parametrize(
    "place", ["/", "/data", "/data/", "/data/in box", "s3://bucket", "s3://bucket/", "s3://b-1.x/p/"]
)
def test_places_that_are_accepted(place: str) -> None:
    assert source_problems(FilesSource(place=place)) == []


ROOTS = read_roots(["/data", "sales=/srv/sales", "*=s3://shared/in"])


@pytest.mark.parametrize(
    ("place", "tenant", "root"),
    [
        ("/data", "default", "/data"),
        ("/data/in/", "default", "/data"),
        ("/database", "default", None),
        ("/data", "sales", None),
        ("/srv/sales/x", "sales", "/srv/sales"),
        ("/srv/sales/x", "default", None),
        ("s3://shared/in", "sales", "s3://shared/in"),
        ("s3://shared/in/x", "default", "s3://shared/in"),
        ("s3://shared/inner", "default", None),
        ("s3://shared", "default", None),
        ("/", "default", None),
    ],
)
def test_only_places_below_a_root_of_the_tenant_are_allowed(place: str, tenant: str, root: str | None) -> None:
    if root is not None:
        assert root_of(ROOTS, place, tenant=tenant, is_first=tenant == "default") == root
        return
    with pytest.raises(CannotLook, match="--watch-root"):
        root_of(ROOTS, place, tenant=tenant, is_first=tenant == "default")


def test_a_root_may_be_the_whole_file_system() -> None:
    assert root_of(read_roots(["/"]), "/data", tenant="default", is_first=True) == "/"


@pytest.mark.parametrize("text", ["data", "sales=data", "s3://", "x y=/data", "/data/.."])
def test_roots_that_are_refused(text: str) -> None:
    with pytest.raises(Invalid, match="--watch-root"):
        read_roots([text])


def test_what_templates_can_read_of_a_file() -> None:
    file = FoundFile("2026/a b.csv", 3, NOW, "3-1", None)
    assert file_values(SOURCE, file) == {
        "name": "a b.csv",
        "path": "/data/in/2026/a b.csv",
        "url": "file:///data/in/2026/a%20b.csv",
        "size": 3,
        "modified_at": "2026-11-18T12:00:00.500000Z",
        "etag": None,
    }
    values = file_values(STORE, FoundFile("a.csv", 3, NOW, "e1", "e1"))
    assert (values["path"], values["url"], values["etag"]) == ("in/a.csv", "s3://bucket/in/a.csv", "e1")
