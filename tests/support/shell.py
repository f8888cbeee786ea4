"""Commands of the CLI against a real server."""

from __future__ import annotations

import asyncio

from click.testing import CliRunner, Result

from mainspring.cli.main import main
from tests.conftest import Cluster


class Shell:
    """`mainspring` with some words, in a thread of its own: it has an event loop of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._env = {"MAINSPRING_URL": cluster.url, "MAINSPRING_TOKEN": cluster.token}

    async def __call__(self, *words: str, code: int = 0) -> Result:
        result = await asyncio.to_thread(CliRunner().invoke, main, words, env=self._env, prog_name="mainspring")
        assert result.exit_code == code, result.output
        return result
