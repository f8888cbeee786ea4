"""The generated reference pages are current, and cover what they list."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainspring.config import ENVIRONMENT
from tools.reference import pages
from tools.reference.settings import variables


@pytest.mark.parametrize("path", sorted(pages()), ids=lambda path: path.name)
def test_a_page_is_current(path: Path) -> None:
    assert path.exists() and path.read_text(encoding="utf-8") == pages()[path], "run: python -m tools.reference"


def test_every_environment_variable_is_documented() -> None:
    assert variables() == set(ENVIRONMENT)
