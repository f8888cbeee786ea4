"""Fixtures of the API over real HTTP."""

from __future__ import annotations

from tests.support.api_fixtures import client, http, issue, neighbour, stranger

__all__ = ["client", "http", "issue", "neighbour", "stranger"]
