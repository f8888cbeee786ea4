"""Checkpoints and artifacts of shell programs; those of functions are tested with workers."""

from __future__ import annotations

from pathlib import Path

import pytest

import mainspring as ms


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ms.Context:
    for name, value in (("EXECUTION_ID", "e"), ("JOB", "j"), ("ATTEMPT", "2"), ("FIRE_AT", "2026-11-15T01:00:00Z")):
        monkeypatch.setenv(f"MAINSPRING_{name}", value)
    (tmp_path / "artifacts").mkdir()
    monkeypatch.setenv("MAINSPRING_CHECKPOINT", str(tmp_path / "checkpoint"))
    monkeypatch.setenv("MAINSPRING_ARTIFACTS", str(tmp_path / "artifacts"))
    return ms.context()


def test_a_checkpoint_is_read_as_it_was_written_and_never_half(context: ms.Context, tmp_path: Path) -> None:
    assert context.last_checkpoint is None
    context.checkpoint({"row": 410})
    assert context.last_checkpoint == {"row": 410}
    with pytest.raises(ValueError, match="the limit is 64,000"):
        context.checkpoint("x" * 64_000)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["checkpoint"]


def test_artifacts_are_text_bytes_or_copies(context: ms.Context, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"\x00\x01")
    context.artifact("a/b.txt", "straße")
    context.artifact("c", source)
    assert (tmp_path / "artifacts/a/b.txt").read_text(encoding="utf-8") == "straße"
    assert (tmp_path / "artifacts/c").read_bytes() == b"\x00\x01"
    for name in ("../up", "/abs", "a\0b"):
        with pytest.raises(ValueError, match=r"part|absolute|characters"):
            context.artifact(name, b"")


def test_without_a_folder_nobody_would_keep_a_file(context: ms.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAINSPRING_ARTIFACTS")
    with pytest.raises(ms.NotExecuting, match="cannot store an artifact outside an execution"):
        context.artifact("a", b"")


def test_a_declared_job_may_have_a_sandbox() -> None:
    assert caged.declaration.spec["sandbox"] == {"memory": "1Gi"}


@ms.job(sandbox={"memory": "1Gi"})
def caged() -> None: ...
