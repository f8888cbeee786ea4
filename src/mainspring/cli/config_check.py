"""Checks of `mainspring config check` that need more than the values: files, networks, the database, the server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mainspring.config import ServeConfig
from mainspring.domain.address import read_networks
from mainspring.domain.errors import MainspringError

CONNECT_TIMEOUT_S = 5.0


def server_problems(settings: Mapping[str, Any]) -> Iterator[str]:
    """What would keep a server from starting, or from working."""
    known = ServeConfig.__dataclass_fields__
    config = ServeConfig(**{name: value for name, value in settings.items() if name in known})
    for networks in (config.allow_net, config.trusted_proxies):
        try:
            read_networks(networks)
        except (MainspringError, ValueError) as error:
            yield str(error)
    if "api" in config.roles and "://" not in config.artifact_store:
        folder = Path(config.artifact_store)
        existing = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
        if not os.access(existing, os.W_OK):
            yield f"artifact-store: {existing} is not writable for this user (uid {os.geteuid()})"
    if config.secret_providers is not None:
        from mainspring.vault.providers.configuration import read_providers

        try:
            read_providers(Path(config.secret_providers))
        except MainspringError as error:
            yield f"secret-providers: {error}"
    yield from asyncio.run(database_problems(config.direct_database_url or config.database_url))


async def database_problems(url: str) -> list[str]:
    """Connect in a read-only transaction; compare the schema of the database with the one of this program."""
    from mainspring.store.database_check import check_database

    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            return await check_database(url)
    except TimeoutError:
        return [f"database: no answer within {CONNECT_TIMEOUT_S:g} s from {_hosts(url)}"]


def worker_problems(settings: Mapping[str, Any]) -> Iterator[str]:
    from mainspring.cli.worker import given_capacity, given_cluster, parse_label, read_token

    for check in (
        lambda: read_token(settings.get("token_file"), None),
        lambda: [parse_label(text) for group in settings["labels"] for text in group.split(",")],
        lambda: given_capacity(settings["resources"]),
        lambda: read_networks(settings["allow_net"]),
        lambda: given_cluster(settings["kube_namespace"], settings["kube_context"], settings["kube_allow"]),
    ):
        try:
            check()
        except (MainspringError, ValueError) as error:
            yield str(error)


def _hosts(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2] or "the local socket"
