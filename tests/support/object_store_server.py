"""A real S3-compatible server (SeaweedFS) on loopback."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.support.engine_servers import EngineServer
from tests.support.processes import free_port

WEED = os.environ.get("MAINSPRING_TEST_WEED", ".cache/seaweedfs/weed")


class ObjectStoreServer(EngineServer):
    """One bucket store with one key pair. Its port is that of the S3 API."""

    key, secret = "test-key", "test-secret"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._ports = {name: free_port() for name in ("master", "volume", "filer")}

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
        return [
            *[program, "server", f"-dir={self.folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-volume.max=4"],
            *[f"-master.port={self._ports['master']}", f"-volume.port={self._ports['volume']}"],
            *[f"-master.port.grpc={free_port()}", f"-volume.port.grpc={free_port()}"],
            *["-filer", f"-filer.port={self._ports['filer']}", f"-filer.port.grpc={free_port()}"],
            *["-master.volumeSizeLimitMB=64", "-master.volumePreallocate=false", "-master.telemetry=false"],
            *["-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.localSocket={self.folder}/s3.sock"],
            *["-s3", f"-s3.port={self.port}", f"-s3.port.grpc={free_port()}", f"-s3.config={config}"],
        ]
