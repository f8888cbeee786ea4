"""A real Kubernetes API server with etcd, on loopback.

It has no nodes: `tests/support/kubelet.py` or kwok plays them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from tests.support.debian_programs import find_program
from tests.support.processes import free_port, until_async
from tools.tree import ROOT

SERVERS = Path(os.environ.get("MAINSPRING_TEST_KUBERNETES", ROOT / ".cache" / "kubernetes-servers"))
ADMIN_TOKEN = "admin-of-the-test"
MERGE = {"Content-Type": "application/merge-patch+json"}


def find_server(name: str) -> Path:
    """Return the path of a built server; skip the test without it."""
    path = SERVERS / name
    if not path.exists():
        pytest.skip(f"{name} is not built: make kubernetes does that, which takes a quarter of an hour")
    return path


class KubernetesServer:
    """One cluster. `request` is an administrator's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self._etcd_port, self._peer_port = free_port(), free_port(), free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self._apiserver: list[str | Path] = []
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.client = httpx2.AsyncClient(
            base_url=self.url, verify=False, headers={"Authorization": f"Bearer {ADMIN_TOKEN}"}, timeout=30
        )

    async def start(self) -> None:
        apiserver, etcd = find_server("kube-apiserver"), find_program("etcd")
        self.folder.mkdir(parents=True, exist_ok=True)
        store = f"http://127.0.0.1:{self._etcd_port}"
        peer = f"http://127.0.0.1:{self._peer_port}"
        self._spawn(
            "etcd", etcd, "--data-dir", "etcd", "--listen-client-urls", store, "--advertise-client-urls", store,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
            "--unsafe-no-fsync",
        )  # fmt: skip
        key = self.folder / "account.key"
        await asyncio.to_thread(make_account_key, key)
        (self.folder / "tokens.csv").write_text(f"{ADMIN_TOKEN},admin,admin,system:masters\n")
        self._apiserver = [
            apiserver, f"--etcd-servers={store}", f"--secure-port={self.port}",
            "--bind-address=127.0.0.1", "--cert-dir=certificates", "--authorization-mode=RBAC",
            "--token-auth-file=tokens.csv", "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/24", "--allow-privileged=true",
            "--kubelet-preferred-address-types=InternalIP",
        ]  # fmt: skip
        await self.start_apiserver()

    async def start_apiserver(self) -> None:
        self._spawn("apiserver", *self._apiserver)
        await self.ready()

    async def ready(self) -> None:
        await until_async("the API server is ready", self._ready, within_s=120)

    def _spawn(self, name: str, *command: str | Path) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(list(map(str, command)), cwd=self.folder, stdout=log, stderr=log)

    def kill_apiserver(self) -> None:
        process = self._processes.pop("apiserver")
        process.kill()
        process.wait()

    async def _ready(self) -> bool:
        for name, process in self._processes.items():
            assert process.poll() is None, (self.folder / f"{name}.log").read_text()[-3000:]
        try:
            return (await self.client.get("/readyz")).status_code == 200
        except httpx2.HTTPError:
            return False

    async def stop(self) -> None:
        await self.client.aclose()
        for process in reversed(list(self._processes.values())):
            process.kill()
            process.wait()
        shutil.rmtree(self.folder / "etcd", ignore_errors=True)

    async def request(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        headers = MERGE if method == "PATCH" else {}
        answer = await self.client.request(method, path, json=body, params=query, headers=headers)
        assert answer.status_code < 400, f"{method} {path}: {answer.text}"
        return answer.json()

    async def find(self, path: str) -> Any:
        """Return an object, or None if it does not exist."""
        answer = await self.client.get(path)
        return None if answer.status_code == 404 else answer.json()

    async def make_namespace(self, name: str) -> None:
        """Create a namespace with its default service account, as the controller manager would."""
        await self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
        await self.request("POST", accounts, {"metadata": {"name": "default"}})

    async def account_token(self, namespace: str, account: str) -> str:
        """Return a token of a service account, as a pod of this account has it."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        token: str = (await self.request("POST", path, {"spec": {"expirationSeconds": 3600}}))["status"]["token"]
        return token

    def kubeconfig(
        self, path: Path, *, token: str = ADMIN_TOKEN, context: str = "test", url: str | None = None
    ) -> Path:
        """Write a kubeconfig with one context."""
        content = {
            "apiVersion": "v1", "kind": "Config", "current-context": context,
            "clusters": [{"name": "c", "cluster": {
                "server": url or self.url, "certificate-authority": str(self.folder / "certificates" / "apiserver.crt"),
            }}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": context, "context": {"cluster": "c", "user": "u"}}],
        }  # fmt: skip
        path.write_text(yaml.safe_dump(content))
        return path


def make_account_key(path: Path) -> None:
    subprocess.run(["openssl", "genrsa", "-out", path, "2048"], check=True, capture_output=True)
