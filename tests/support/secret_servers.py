"""Servers that keep secrets, as processes: KV version 2 engines, and AWS Secrets Manager as moto implements it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.engine_servers import EngineServer

VAULT = Path(os.environ.get("MAINSPRING_TEST_VAULT", ".cache/vault/vault")).resolve()
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

    async def put(self, path: str, fields: dict[str, str]) -> None:
        self.set(data=self._state["data"] | {path: fields})

    async def remove(self, path: str) -> None:
        self.set(data=self._state["data"] | {path: "deleted"})

    async def seal(self) -> None:
        self.set(sealed=True)

    @property
    def requests(self) -> list[str]:
        log = self._state_file.with_suffix(".requests")
        return log.read_text().splitlines() if log.exists() else []

    def command(self) -> list[str]:
        program = [sys.executable, str(ROOT / "tests/support/kv_server.py")]
        return [*program, str(self.port), str(self._state_file), *map(str, self._tls)]


class VaultServer(EngineServer):
    """HashiCorp Vault in development mode: unsealed, in memory, with a KV version 2 engine at `secret`."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        if not VAULT.exists():
            pytest.skip("HashiCorp Vault is not built (make vault)")
        options = ["-dev-root-token-id=root-token", "-dev-no-store-token", f"-dev-listen-address=127.0.0.1:{self.port}"]
        return [str(VAULT), "server", "-dev", *options]

    async def put(self, path: str, fields: dict[str, str]) -> None:
        await self.call("POST", f"secret/data/{path}", {"data": fields})

    async def remove(self, path: str) -> None:
        """Delete the current version, as `vault kv delete` does."""
        await self.call("DELETE", f"secret/data/{path}")

    async def seal(self) -> None:
        await self.call("PUT", "sys/seal")

    async def token(self, policy: str) -> str:
        """Create a token with this policy."""
        await self.call("PUT", "sys/policies/acl/test", {"policy": policy})
        answer = await self.call("POST", "auth/token/create", {"policies": ["test"], "no_default_policy": True})
        return str(answer["auth"]["client_token"])

    async def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        async with httpx2.AsyncClient(base_url=self.url, trust_env=False, timeout=60) as http:
            headers = {"X-Vault-Token": "root-token"}
            answer = await http.request(method, f"/v1/{path}", headers=headers, json=body)
        assert answer.status_code in (200, 204), (path, answer.text)
        return answer.json() if answer.content else None


class MotoServer(EngineServer):
    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        program = MOTO / "bin/moto_server"
        if not program.exists():
            pytest.skip("moto is not installed (make install-system)")
        return [str(program), "-H", "127.0.0.1", "-p", str(self.port)]
