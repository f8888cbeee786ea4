"""Real Redis, etcd and ZooKeeper servers on loopback, which tests kill, freeze and start again empty."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.processes import free_port, until_async

JARS = Path(os.environ.get("MAINSPRING_TEST_JARS", ".cache/jars"))


class EngineServer:
    """One server process. `start` returns when it accepts connections."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        raise NotImplementedError

    def command(self) -> list[str]:
        raise NotImplementedError

    async def start(self) -> None:
        self._spawn()
        await until_async("the server accepts connections", self._accepts, within_s=60)

    def _spawn(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self.command(), cwd=self.folder, stdout=log, stderr=log)

    async def _accepts(self) -> bool:
        assert self._process is not None and self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    async def restart_empty(self) -> None:
        self.kill()
        shutil.rmtree(self.folder)
        await self.start()


def _program(name: str, package: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed (Debian package {package})")
    return found


class RedisServer(EngineServer):
    password = ""

    @property
    def url(self) -> str:
        return f"redis://{':' + self.password + '@' if self.password else ''}127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        program = _program("redis-server", "redis-server")
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        return [program, *options, *(["--requirepass", self.password] if self.password else [])]


class EtcdServer(EngineServer):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._peer_port = free_port()

    @property
    def url(self) -> str:
        return f"etcd://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        here, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self._peer_port}"
        return [
            *[_program("etcd", "etcd-server"), "--name", "one", "--data-dir", str(self.folder / "data")],
            *["--listen-client-urls", here, "--advertise-client-urls", here],
            *["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer],
            *["--initial-cluster", f"one={peer}", "--unsafe-no-fsync"][: 2 if _old_etcd() else 3],
        ]


def _old_etcd() -> bool:
    """Whether etcd lacks --unsafe-no-fsync (before 3.5)."""
    version = subprocess.run([_program("etcd", "etcd-server"), "--version"], capture_output=True, text=True, check=True)
    return "etcd Version: 3.4" in version.stdout


class ZooKeeperServer(EngineServer):
    @property
    def url(self) -> str:
        return f"zookeeper://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        java, jars = _program("java", "default-jre-headless"), JARS.resolve() / "zookeeper"
        if not jars.is_dir():
            pytest.skip("the ZooKeeper server is not installed (make install-system)")
        settings = {
            "tickTime": 500,
            "dataDir": self.folder / "data",
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
        }
        config = self.folder / "zoo.cfg"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return [java, "-Xmx128m", "-XX:+UseSerialGC", "-cp", f"{jars}/*", main, str(config)]
