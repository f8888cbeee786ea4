"""Links between the project's own pages lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.tree import ROOT, text_files

_LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")


def dead_links(page: Path) -> list[str]:
    targets = _LINK.findall(page.read_text(encoding="utf-8"))
    return [
        target
        for target in targets
        if "://" not in target and not target.startswith("mailto:") and not (page.parent / target).exists()
    ]


def test_no_page_has_a_dead_link() -> None:
    pages = [path for path in text_files() if path.suffix == ".md"]
    assert pages
    found = {str(page.relative_to(ROOT)): dead_links(page) for page in pages}
    assert {page: links for page, links in found.items() if links} == {}


@pytest.mark.requirement(59)
def test_what_it_is_not_for_is_documented() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.partition("\n## What it is not for\n")[2].partition("\n## ")[0]
    subjects = re.findall(r"^- \*\*(.+?)\.\*\* \S", section, re.MULTILINE)
    assert subjects == ["Deploying the code of jobs", "Log aggregation", "Machine learning", "Streams"]


def test_a_dead_link_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("[a](page.md#here) [b](gone.md) [c](https://example.org/x)")
    assert dead_links(page) == ["gone.md"]
