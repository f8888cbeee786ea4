"""The pytest plug-in: clusters as fixtures. Nothing of Mainspring is imported until a test asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mainspring.testing.cluster import Cluster, LoopThread
    from mainspring.testing.postgres import TestDatabases

MARK = "mainspring"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{MARK}(start, workers): where the clock of mainspring_cluster stands, and how many workers it has"
    )


@pytest.fixture(scope="session")
def mainspring_thread() -> Iterator[LoopThread]:
    """The thread in which clusters run."""
    from mainspring.testing.cluster import LoopThread

    thread = LoopThread()
    yield thread
    thread.stop()


@pytest.fixture(scope="session")
def mainspring_databases(mainspring_thread: LoopThread) -> Iterator[TestDatabases]:
    """A PostgreSQL server for this test process; with MAINSPRING_TEST_DATABASE_URL, that one."""
    from mainspring.testing.postgres import TestDatabases

    databases = TestDatabases()
    mainspring_thread.run(databases.start())
    yield databases
    mainspring_thread.run(databases.stop())


@pytest.fixture
def mainspring_cluster(
    request: pytest.FixtureRequest, mainspring_databases: TestDatabases, mainspring_thread: LoopThread
) -> Iterator[Cluster]:
    """A cluster of its own for each test, whose time only the test moves."""
    from mainspring.testing.cluster import Cluster

    mark = request.node.get_closest_marker(MARK)
    options: dict[str, Any] = {} if mark is None else dict(mark.kwargs)
    with Cluster(mainspring_databases, mainspring_thread, **options) as cluster:
        yield cluster
