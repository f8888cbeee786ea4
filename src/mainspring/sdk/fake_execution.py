"""`ms.fake_execution`: an execution for unit tests of functions that use `ms.context()`, progress or checkpoints.

with ms.fake_execution(attempt=2, checkpoint=40) as execution:
    assert import_rows(rows=100) == 60
assert execution.checkpoint == 100
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple
from uuid import uuid4

import msgspec

from mainspring.sdk.context import current


class ReportedProgress(NamedTuple):
    """One call of `report_progress`."""

    done: float
    total: float | None
    message: str | None


@dataclass
class FakeExecution:
    """What the code under test sees, and what it has done. Implements `CurrentCall`."""

    execution_id: str
    job: str
    attempt: int
    fire_at: str
    last_checkpoint: Any
    inputs: str | None
    folder: Path
    checkpoint: Any = None
    """The last value that was saved; at first the one of the earlier attempt."""
    progress: list[ReportedProgress] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    committed: bool = False
    """Whether `ms.transaction` has committed."""

    @property
    def artifacts(self) -> dict[str, bytes]:
        """The stored artifacts by name."""
        found = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        return {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in found}

    def report_progress(self, done: float, total: float | None, message: str | None) -> None:
        self.progress.append(ReportedProgress(done, total, message))

    def write(self, stream: Literal["stdout", "stderr"], text: str, *, flush: bool) -> None:
        self.output.append(text)

    def flush(self) -> None: ...

    def save_checkpoint(self, value: bytes) -> None:
        self.checkpoint = msgspec.json.decode(value)

    def artifact_folder(self) -> str:
        return str(self.folder)


@contextmanager
def fake_execution(
    *,
    job: str = "test",
    execution_id: str | None = None,
    attempt: int = 1,
    fire_at: datetime = datetime(2026, 1, 1, tzinfo=UTC),
    checkpoint: Any = None,
    inputs: Mapping[str, bytes | str] | None = None,
) -> Iterator[FakeExecution]:
    """Run the block as an execution, without a server: `ms.context()` and progress work, and their use is recorded.

    `checkpoint` is what an earlier attempt saved, `inputs` are the files of `artifacts_in` by name. Artifacts can be
    read until the block ends.
    """
    at = fire_at if fire_at.tzinfo is not None else fire_at.replace(tzinfo=UTC)
    with tempfile.TemporaryDirectory(prefix="mainspring-fake-") as folder:
        artifacts, files = Path(folder, "artifacts"), Path(folder, "inputs")
        artifacts.mkdir()
        for name, content in (inputs or {}).items():
            path = files / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        made = FakeExecution(
            execution_id or str(uuid4()), job, attempt, at.isoformat(), checkpoint, str(files), artifacts, checkpoint
        )
        token = current.set(made)
        try:
            yield made
        finally:
            current.reset(token)
