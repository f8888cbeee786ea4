from __future__ import annotations

from pathlib import Path

from mainspring.embedded.settings import _group_limits, usable_memory


def test_memory_respects_the_limit_of_every_group_above(tmp_path: Path) -> None:
    for path, limit in (("", "max"), ("a", "500"), ("a/b", "max"), ("memory/c", "300")):
        (tmp_path / path).mkdir(parents=True, exist_ok=True)
        name = "memory.limit_in_bytes" if path.startswith("memory") else "memory.max"
        (tmp_path / path / name).write_text(limit + "\n")
    membership = tmp_path / "membership"
    membership.write_text("5:cpu,cpuacct:/ignored\n4:memory:/c\n0::/a/b\n")
    assert sorted(_group_limits(membership, tmp_path)) == [300, 500]


def test_memory_is_known_here() -> None:
    assert usable_memory() > 64 * 1024 * 1024
