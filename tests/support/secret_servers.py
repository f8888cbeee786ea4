"""Servers that keep secrets, as processes: a KV version 2 engine, and AWS Secrets Manager as moto implements it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_servers import EngineServer

MOTO = Path(os.environ.get("MAINSPRING_TEST_MOTO", ".cache/moto")).resolve()
ROOT = Path(__file__).parents[2]


class KvServer(EngineServer):
    """`tests.support.kv_server` in a process of its own."""

    def __init__(self, folder: Path, *tls: Path, **state: Any) -> None:
        super().__init__(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._state_file, self._tls = folder / "state.json", tls
        self._state: dict[str, Any] = {"token": "root-token", "data": {}}
        self.set(**state)

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}" if self._tls else f"http://127.0.0.1:{self.port}"

    def set(self, **state: Any) -> None:
        self._state |= state
        fresh = self._state_file.with_suffix(".new")
        fresh.write_text(json.dumps(self._state))
        fresh.replace(self._state_file)

    @property
    def requests(self) -> list[str]:
        log = self._state_file.with_suffix(".requests")
        return log.read_text().splitlines() if log.exists() else []

    def command(self) -> list[str]:
        program = [sys.executable, str(ROOT / "tests/support/kv_server.py")]
        return [*program, str(self.port), str(self._state_file), *map(str, self._tls)]


class MotoServer(EngineServer):
    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        program = MOTO / "bin/moto_server"
        if not program.exists():
            pytest.skip("moto is not installed (make install-system)")
        return [str(program), "-H", "127.0.0.1", "-p", str(self.port)]
