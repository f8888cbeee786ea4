"""The documentation agrees with the tree and with itself: links, file names, the map of packages, tables of fields."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainspring.domain import container, job, limit, params, plugin, retry, task
from mainspring.domain.schedule.spec import ScheduleSpec
from mainspring.domain.workflow import spec as workflow
from tools.tree import ROOT, SOURCE, text_files

PAGES = [path for path in text_files() if path.suffix == ".md"]
NAMES_FILES = [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs" / "explanation").glob("*.md"))]
MOST_LINES_OF_ARCHITECTURE = 150

_LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)]*))?\)")
_FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_FILE = re.compile(r"`([\w./-]+\.(?:py|sql|toml|yaml|json|html|js|md))(?::[^`]*)?`")
_FOLDER = re.compile(r"`([a-z_]+(?:/[a-z_]+)*/)`")
_NAME = re.compile(r"`([a-z]+(?:_[a-z]+)+)(?:\(\))?`")
_THIRD_PARTY = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?https?://""")


@cache
def prose(page: Path) -> str:
    return _FENCED.sub("", page.read_text(encoding="utf-8"))


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the site makes them."""
    found: set[str] = set()
    for heading in _HEADING.findall(prose(page)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
        slug = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_text).strip().lower())
        number = 0
        while (anchor := f"{slug}_{number}" if number else slug) in found:
            number += 1
        found.add(anchor)
    return found


def dead_links(page: Path) -> list[str]:
    """Links of a page to files or headings that do not exist."""
    found = []
    for target, anchor in _LINK.findall(prose(page)):
        if "://" in target or target.startswith("mailto:"):
            continue
        path = page.parent / target if target else page
        if not path.exists():
            found.append(target)
        elif anchor and path.suffix == ".md" and anchor not in anchors(path):
            found.append(f"{target}#{anchor}")
    return found


@cache
def words_of_the_code() -> frozenset[str]:
    files = (path for path in text_files(SOURCE) if path.suffix in (".py", ".sql"))
    return frozenset(word for path in files for word in re.findall(r"\w+", path.read_text(encoding="utf-8")))


def test_no_page_has_a_dead_link() -> None:
    assert PAGES
    found = {str(page.relative_to(ROOT)): dead_links(page) for page in PAGES}
    assert {page: links for page, links in found.items() if links} == {}


def test_a_dead_link_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Here it is\n[a](page.md#here-it-is) [b](gone.md) [c](https://example.org/x) [d](#gone)\n")
    assert dead_links(page) == ["gone.md", "#gone"]


@pytest.mark.parametrize("page", NAMES_FILES, ids=lambda page: page.name)
def test_files_that_explanations_name_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    names = [*_FILE.findall(text), *_FOLDER.findall(text)]
    missing = [name for name in names if not any((root / name).exists() for root in (SOURCE, ROOT, page.parent))]
    assert missing == []


@pytest.mark.parametrize("page", NAMES_FILES, ids=lambda page: page.name)
def test_names_that_explanations_use_are_in_the_code(page: Path) -> None:
    named = set(_NAME.findall(page.read_text(encoding="utf-8")))
    assert named - words_of_the_code() == set()


def test_the_architecture_is_an_overview() -> None:
    lines = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MOST_LINES_OF_ARCHITECTURE


def test_the_map_of_the_readme_has_every_package() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.partition("\n## Map\n")[2].partition("\n## ")[0]
    mapped = set(re.findall(r"`(?:src/mainspring/)?([a-z_]+)/`", section))
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages - mapped == set()


def test_labels_that_the_guide_to_the_web_ui_names_are_in_its_templates() -> None:
    named = re.findall(r"\*\*([^*]+)\*\*", (ROOT / "docs" / "how-to" / "web-ui.md").read_text(encoding="utf-8"))
    files = [path for path in (SOURCE / "web").rglob("*") if path.suffix in (".html", ".py", ".js")]
    interface = "".join(path.read_text(encoding="utf-8") for path in files)
    assert [label for label in named if label not in interface] == []


@pytest.mark.requirement(59)
def test_what_it_is_not_for_is_documented() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.partition("\n## What it is not for\n")[2].partition("\n## ")[0]
    subjects = re.findall(r"^- \*\*(.+?)\.\*\* \S", section, re.MULTILINE)
    assert subjects == ["Deploying the code of jobs", "Log aggregation", "Machine learning", "Streams"]


FIELDS: dict[str, dict[str, type[msgspec.Struct]]] = {
    "schedules.md": {"ScheduleSpec": ScheduleSpec},
    "jobs.md": {
        "JobSpec": job.JobSpec,
        "RetryPolicy": retry.RetryPolicy,
        "Misfire": job.Misfire,
        "Param": params.Param,
        "Concurrency": limit.Concurrency,
        "Rate": limit.Rate,
        "Notify": job.Notify,
    },
    "tasks.md": {
        "ShellTask": job.ShellTask,
        "HttpTask": task.HttpTask,
        "PythonTask": task.PythonTask,
        "ContainerTask": container.ContainerTask,
        "PluginTask": plugin.PluginTask,
    },
    "workflow-file.md": {"WorkflowSpec": workflow.WorkflowSpec, "Step": workflow.Step},
}
STEP_KINDS = {"task", "workflow", "approval", "event", "wait"}


@pytest.mark.parametrize(
    ("page", "name"), [(page, name) for page, tables in FIELDS.items() for name in tables], ids=lambda part: part
)
def test_a_table_of_fields_has_every_field_with_its_default(page: str, name: str) -> None:
    text = (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8")
    table = text.partition(f"<!-- fields: {name} -->\n")[2].strip().partition("\n\n")[0]
    head, _, *rows = [re.split(r" *(?<!\\)\| *", line.strip("|").strip()) for line in table.splitlines()]
    documented = {row[0].strip("` "): row[head.index("Default")] for row in rows}
    expected = {
        field.encode_name: _default(field)
        for field in msgspec.structs.fields(FIELDS[page][name])
        if not (name == "Step" and field.name in STEP_KINDS)
    }
    assert documented.keys() == expected.keys()
    # A default that is a whole policy is described in words.
    wrong = {
        field: (documented[field], said) for field, said in expected.items() if said not in (None, documented[field])
    }
    assert wrong == {}


def _default(field: Any) -> str | None:
    if field.required:
        return "required"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if value in (None, msgspec.UNSET, ""):
        return "–"
    if isinstance(value, msgspec.Struct) or field.name == "on":
        return None
    return f"`{value if isinstance(value, str) else msgspec.json.encode(value).decode()}`"


@pytest.mark.slow
def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert pages
    assert [page for page in pages if _THIRD_PARTY.search(page.read_text(encoding="utf-8"))] == []
