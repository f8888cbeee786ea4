"""Real container engines, Podman and Docker, each with its own socket and storage folder."""

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

from tests.support.processes import until

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


class EngineProgram:
    """A running engine that can be killed and restarted."""

    programs: tuple[str, ...]  # required on this machine

    def __init__(self) -> None:
        # Not below pytest's temporary folder: engines mount file systems there, which pytest can't remove.
        self.folder = Path(tempfile.mkdtemp(prefix="mainspring-engine-"))
        self.socket = str(self.folder / "engine.sock")
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    async def start(self) -> None:
        with (self.folder / "engine.log").open("ab") as screen:
            self.process = subprocess.Popen(  # noqa: ASYNC220
                self.command(), stdout=screen, stderr=screen, start_new_session=True, cwd=self.folder
            )
        await until("the engine's answer", self._answers, within_s=60)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Remove all containers, mounts and folders, whatever the tests did."""
        with self.client() as client:
            for name in self.containers():
                client.delete(f"/containers/{name.lstrip('/')}?force=1&v=1")
        self.end()
        shutil.rmtree(self.folder)

    def end(self) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.wait(30)

    def client(self) -> httpx2.Client:
        return httpx2.Client(transport=httpx2.HTTPTransport(uds=self.socket), base_url="http://engine", timeout=30)

    def containers(self) -> list[str]:
        """Return the names of all containers, running or not."""
        with self.client() as client:
            return [found["Names"][0] for found in client.get("/containers/json?all=1").json()]

    async def runs_one(self) -> None:
        """Wait until the engine reports a running container: one that is just starting does not survive its death."""

        def known() -> bool:
            with self.client() as client:
                return len(client.get("/containers/json").json()) == 1

        await until("a running container", known, within_s=30)

    def import_image(self) -> None:
        """Import an image with nothing but BusyBox."""
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
            params = {"fromSrc": "-", "repo": IMAGE.partition(":")[0], "tag": "latest"}
            client.post("/images/create", params=params, content=content.getvalue()).raise_for_status()

    def _answers(self) -> bool:
        assert self.process is not None and self.process.poll() is None, (self.folder / "engine.log").read_text()
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(self.socket) != 0:
                return False
        with self.client() as client:
            return client.get("/_ping").status_code == 200


class Podman(EngineProgram):
    programs = ("podman", "runc", "busybox", "bwrap")

    def command(self) -> list[str]:
        return [
            "podman",
            "--root",
            str(self.folder / "root"),
            "--runroot",
            str(self.folder / "run"),
            "--runtime",
            "runc",
            "--storage-driver",
            "vfs",
            "--cgroup-manager",
            "cgroupfs",
            "--events-backend",
            "file",
            "system",
            "service",
            "--time=0",
            f"unix://{self.socket}",
        ]


class Docker(EngineProgram):
    """Docker without a bridge, which would change the machine's network, and with a containerd that outlives it, as
    when installed."""

    programs = ("dockerd", "containerd", "runc", "busybox")

    def __init__(self) -> None:
        super().__init__()
        self._containerd: subprocess.Popen[bytes] | None = None
        self._door = self.folder / "containerd.sock"

    async def start(self) -> None:
        if self._containerd is None:
            places = ["--root", str(self.folder / "images"), "--state", str(self.folder / "state")]
            with (self.folder / "containerd.log").open("ab") as screen:
                self._containerd = subprocess.Popen(  # noqa: ASYNC220
                    ["containerd", *places, "--address", str(self._door)],
                    stdout=screen,
                    stderr=screen,
                    start_new_session=True,
                )
            await until("containerd's socket", self._door.exists, within_s=60)
        await super().start()

    def end(self) -> None:
        super().end()
        if self._containerd is not None:
            self._containerd.terminate()
            self._containerd.wait(30)
        # dockerd bind-mounts its folder and leaves that mounted for containers that outlive it.
        subprocess.run(["umount", str(self.folder / "data")], check=False)

    def command(self) -> list[str]:
        return [
            "dockerd",
            "--storage-driver=vfs",
            "--iptables=false",
            "--ip6tables=false",
            "--bridge=none",
            "--live-restore",
            "--data-root",
            str(self.folder / "data"),
            "--exec-root",
            str(self.folder / "exec"),
            "--containerd",
            str(self._door),
            "--pidfile",
            str(self.folder / "pid"),
            "-H",
            f"unix://{self.socket}",
        ]


def needed(engine: type[EngineProgram] = Podman) -> None:
    """Skip the test if the engine can't run here: packages are missing, or this is not root."""
    for program in engine.programs:
        if shutil.which(program) is None and not os.path.exists(f"/usr/sbin/{program}"):
            how = "Debian's docker.io" if engine is Docker else "make install-system"
            pytest.skip(f"needs {program}: {how}")
    if os.geteuid() != 0:
        pytest.skip("needs root, to run an engine of its own")
