"""Runs a CLI command in this process."""

from __future__ import annotations

from collections.abc import Callable

from click.testing import Result

Invoke = Callable[..., Result]
