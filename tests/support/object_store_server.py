"""A real S3-compatible server (SeaweedFS) on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
from pathlib import Path

import pytest

from tests.support.engine_servers import EngineServer

WEED = os.environ.get("MAINSPRING_TEST_WEED", ".cache/seaweedfs/weed")
STARTS = 5
PARTS = ("master", "volume", "filer", "s3")


def quiet_port() -> int:
    """A free port that no outgoing connection takes: the server binds its ports over seconds."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(10_000, first)
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port


class ObjectStoreServer(EngineServer):
    """One server with one key pair. Its port is that of the S3 API."""

    key, secret = "test-key", "test-secret"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._ports: dict[str, int] = {}

    async def start(self) -> None:
        """Start it; with other ports, if another process took one of them meanwhile."""
        for _ in range(STARTS):
            self._ports = {name: quiet_port() for part in PARTS for name in (part, f"{part}.grpc")}
            self.port = self._ports["s3"]
            try:
                await super().start()
            except AssertionError:
                if "address already in use" not in (self.folder / "log").read_text():
                    raise
                self.kill()
                shutil.rmtree(self.folder)
            else:
                return
        raise AssertionError(f"no free ports in {STARTS} attempts")

    def kill(self) -> None:
        super().kill()
        for port in self._ports.values():
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What a server needs to read from it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": "us-east-1",
        }

    def command(self) -> list[str]:
        program = shutil.which("weed") or (str(Path(WEED).resolve()) if Path(WEED).is_file() else None)
        if program is None:
            pytest.skip("SeaweedFS is not installed (make install-system)")
        actions = ["Admin", "Read", "Write", "List"]
        identity = {"name": "test", "credentials": [{"accessKey": self.key, "secretKey": self.secret}]}
        config = self.folder / "s3.json"
        config.write_text(json.dumps({"identities": [{**identity, "actions": actions}]}))
        ports = [f"-{part}.port={self._ports[part]}" for part in PARTS]
        ports += [f"-{part}.port.grpc={self._ports[part + '.grpc']}" for part in PARTS]
        return [
            *[program, "server", f"-dir={self.folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-volume.max=4"],
            *["-master.volumeSizeLimitMB=64", "-master.volumePreallocate=false", "-master.telemetry=false"],
            *["-filer", "-s3", f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0"],
            *[f"-s3.localSocket={self.folder}/s3.sock", *ports],
        ]
