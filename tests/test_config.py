"""Configuration: roles, and suggestions for misspelled settings."""

from __future__ import annotations

import re

import pytest

from mainspring.config import ENVIRONMENT, ROLES, parse_roles, unknown_settings
from mainspring.domain.errors import Invalid
from tools.tree import SOURCE, python_files


@pytest.mark.parametrize(
    ("text", "roles"),
    [
        ("api,scheduler", ("api", "scheduler")),
        (" scheduler ", ("scheduler",)),
        ("api,,api", ("api",)),
    ],
)
def test_roles(text: str, roles: tuple[str, ...]) -> None:
    assert parse_roles(text) == roles


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("schedular", "did you mean 'scheduler'?"),
        ("x", "known roles: api, scheduler"),
        ("", "at least one"),
        (",", "at least one"),
    ],
)
def test_unknown_roles_are_rejected(text: str, advice: str) -> None:
    with pytest.raises(Invalid, match=re.escape(advice)):
        parse_roles(text)


def test_unknown_settings_are_reported() -> None:
    told = unknown_settings({"MAINSPRING_PROT": "1", "MAINSPRING_PORT": "1", "PATH": "", "MAINSPRING_QQQQQQ": ""})
    assert told == [
        "MAINSPRING_PROT is not a known setting; did you mean MAINSPRING_PORT?",
        "MAINSPRING_QQQQQQ is not a known setting",
    ]


def test_every_variable_that_is_read_is_a_setting() -> None:
    read = re.compile(r"""(?:envvar=|environ(?:\.get)?[\[(])["'](MAINSPRING_\w+)["']""")
    found = {name for path in python_files(SOURCE) for name in read.findall(path.read_text())}
    assert found
    assert found <= set(ENVIRONMENT)
    assert set(ROLES) == {"api", "scheduler"}
