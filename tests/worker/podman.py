"""A real container engine: Debian's Podman, on a socket and a storage folder of the test's own."""

from __future__ import annotations

import io
import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
from pathlib import Path

import httpx2
import pytest

from tests.flow.processes import until

IMAGE = "docker.io/library/mainspring-test:latest"
APPLETS = (
    "sh",
    "echo",
    "cat",
    "sleep",
    "env",
    "ls",
    "head",
    "true",
    "ip",
    "tail",
    "cut",
    "touch",
    "mkdir",
    "mv",
    "ln",
    "rm",
)


class Podman:
    """A running `podman system service`; it can be killed and started again, as engines are."""

    def __init__(self) -> None:
        # Not below pytest's own folder: engines mount things there, and pytest would stumble over them.
        folder = self.folder = Path(tempfile.mkdtemp(prefix="mainspring-podman-"))
        self.socket = str(folder / "podman.sock")
        self._podman = [
            "podman", "--root", str(folder / "root"), "--runroot", str(folder / "run"), "--runtime", "runc",
            "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "file",
        ]  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        with (self.folder / "podman.log").open("ab") as screen:
            self.process = subprocess.Popen(  # noqa: ASYNC220
                [*self._podman, "system", "service", "--time=0", f"unix://{self.socket}"],
                stdout=screen, stderr=screen, start_new_session=True,
            )  # fmt: skip
        await until("Podman's answer", self._answers, within_s=30)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Leaves no container, no mount and no folder, whatever the tests did."""
        remove = [*self._podman, "rm", "--all", "--force", "--time", "0"]
        subprocess.run(remove, check=True, stdout=subprocess.DEVNULL)
        self.kill()
        shutil.rmtree(self.folder)

    def client(self) -> httpx2.Client:
        return httpx2.Client(transport=httpx2.HTTPTransport(uds=self.socket), base_url="http://podman", timeout=30)

    def containers(self) -> list[str]:
        """Names of all there are, running or not."""
        with self.client() as client:
            return [found["Names"][0] for found in client.get("/containers/json?all=1").json()]

    async def runs_one(self) -> None:
        """Until the engine itself knows of a running container: one it was just starting is not safe from its death."""

        def known() -> bool:
            with self.client() as client:
                return len(client.get("/containers/json").json()) == 1

        await until("a running container", known, within_s=30)

    def import_image(self) -> None:
        """An image that holds BusyBox and nothing else."""
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as archive:
            for folder in ("bin", "tmp"):
                entry = tarfile.TarInfo(folder)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o1777
                archive.addfile(entry)
            archive.add("/bin/busybox", "bin/busybox")
            for name in APPLETS:
                link = tarfile.TarInfo(f"bin/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                archive.addfile(link)
        with self.client() as client:
            params = {"fromSrc": "-", "repo": IMAGE.partition(":")[0]}
            client.post("/images/create", params=params, content=content.getvalue()).raise_for_status()

    def _answers(self) -> bool:
        assert self.process is not None and self.process.poll() is None, (self.folder / "podman.log").read_text()
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(self.socket) != 0:
                return False
        with self.client() as client:
            return client.get("/_ping").status_code == 200


def needed() -> None:
    """Skips where no engine can be had: its packages are missing, or this is not root."""
    for program in ("podman", "runc", "busybox", "bwrap"):
        if shutil.which(program) is None and not os.path.exists(f"/usr/sbin/{program}"):
            pytest.skip(f"needs {program}: make install-system")
    if os.geteuid() != 0:
        pytest.skip("needs root, to run an engine of its own")
