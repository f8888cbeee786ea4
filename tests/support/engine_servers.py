"""Real Redis, etcd, ZooKeeper and Kafka servers on loopback, which tests kill, freeze and start again empty."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import signal
import ssl
import subprocess
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest

from tests.support.certificates import make_certificate
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


class SecureRedisServer(RedisServer):
    """One with TLS, whose only user has a password and the rights that Mainspring needs."""

    USER = "mainspring on >correct resetkeys ~{mainspring-* resetchannels &mainspring-* -@all"
    COMMANDS = (
        "+ping +publish +subscribe +evalsha +script|load +get +set +mget +time +hello +client"
        " +del +expire +zadd +zrange +zremrangebyscore"
    )

    @property
    def url(self) -> str:
        return f"rediss://mainspring:correct@localhost:{self.port}?ssl_ca_certs={self.folder}/cert.pem"

    def command(self) -> list[str]:
        key, certificate = make_certificate(self.folder)
        (self.folder / "users.acl").write_text(f"user default off\nuser {self.USER} {self.COMMANDS}\n")
        return [
            *[_program("redis-server", "redis-server"), "--port", "0", "--tls-port", str(self.port)],
            *["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--aclfile", str(self.folder / "users.acl")],
            *["--tls-cert-file", str(certificate), "--tls-key-file", str(key)],
            *["--tls-ca-cert-file", str(certificate), "--tls-auth-clients", "no"],
        ]


class SecureEtcdServer(EtcdServer):
    """One with TLS; `enable_passwords` creates the user `mainspring` with the rights that Mainspring needs."""

    @property
    def url(self) -> str:
        return f"etcds://mainspring:correct@localhost:{self.port}?ca={self.folder}/cert.pem"

    def command(self) -> list[str]:
        key, certificate = make_certificate(self.folder)
        plain = super().command()
        words = [word.replace("http://", "https://") if str(self.port) in word else word for word in plain]
        return [*words, "--cert-file", str(certificate), "--key-file", str(key)]

    async def enable_passwords(self) -> None:
        tls = ssl.create_default_context(cafile=str(self.folder / "cert.pem"))
        prefix = base64.b64encode(b"/mainspring-").decode()
        beyond = base64.b64encode(b"/mainspring.").decode()
        async with httpx2.AsyncClient(verify=tls, trust_env=False, base_url=f"https://localhost:{self.port}") as http:
            for path, body in (
                ("user/add", {"name": "root", "password": "root"}),
                ("user/grant", {"user": "root", "role": "root"}),
                ("role/add", {"name": "mainspring"}),
                ("role/grant", {"name": "mainspring", "perm": {"permType": 2, "key": prefix, "range_end": beyond}}),
                ("user/add", {"name": "mainspring", "password": "correct"}),
                ("user/grant", {"user": "mainspring", "role": "mainspring"}),
                ("auth/enable", {}),
            ):
                answer = await http.post(f"/v3/auth/{path}".replace("auth/auth", "auth"), json=body)
                assert answer.status_code == 200, (path, answer.text)


class KafkaServer(EngineServer):
    """One broker that is its own controller (KRaft). Formatting a folder gives the cluster a new id.

    With `user` and `password`, clients must authenticate (SASL/PLAIN). Clients connect to `advertised_port`, if set.
    """

    def __init__(self, folder: Path, *, user: str = "", password: str = "") -> None:
        super().__init__(folder)
        self.user, self.password = user, password
        self.advertised_port = self.port
        self._controller_port = free_port()
        self._inner_port = free_port()

    @property
    def url(self) -> str:
        credentials = f"{self.user}:{self.password}@" if self.user else ""
        return f"kafka://{credentials}127.0.0.1:{self.advertised_port}"

    @property
    def inner(self) -> str:
        """The address of a listener that is not behind `advertised_port`."""
        return f"127.0.0.1:{self._inner_port}"

    async def start(self) -> None:
        java = self._java()
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "server.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in self._settings().items()))
        if not (self.folder / "data").is_dir():
            options = ["format", "-t", uuid4().hex[:22], "-c", str(config), *self.format_options()]
            with (self.folder / "log").open("ab") as log:
                format = [*java, "kafka.tools.StorageTool", *options]
                await asyncio.to_thread(subprocess.run, format, cwd=self.folder, stdout=log, stderr=log, check=True)
        await super().start()

    def command(self) -> list[str]:
        return [*self._java(), "kafka.Kafka", str(self.folder / "server.properties")]

    def format_options(self) -> list[str]:
        return []

    def _java(self) -> list[str]:
        java, jars = _program("java", "default-jre-headless"), JARS.resolve() / "kafka"
        if not jars.is_dir():
            pytest.skip("the Kafka server is not installed (make install-system)")
        return [java, "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]

    def _settings(self) -> dict[str, object]:
        here, controller = f"127.0.0.1:{self.port}", f"127.0.0.1:{self._controller_port}"
        login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        sasl = {
            "listener.name.clients.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.clients.plain.sasl.jaas.config": f'{login} user_{self.user}="{self.password}";',
        }
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"INNER://127.0.0.1:{self._inner_port},CLIENTS://{here},CONTROLLER://{controller}",
            "advertised.listeners": f"INNER://127.0.0.1:{self._inner_port},CLIENTS://127.0.0.1:{self.advertised_port}",
            "listener.security.protocol.map": "INNER:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            f"CLIENTS:{'SASL_PLAINTEXT' if self.user else 'PLAINTEXT'}",
            "inter.broker.listener.name": "INNER",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.folder / "data",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "group.initial.rebalance.delay.ms": 0,
            "group.min.session.timeout.ms": 1000,
            "auto.create.topics.enable": "false",
            "log.segment.bytes": 16_777_216,
            **(sasl if self.user else {}),
        }


class SecureKafkaServer(KafkaServer):
    """One with TLS, whose clients authenticate with SCRAM-SHA-512."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, user="mainspring", password="correct")

    @property
    def url(self) -> str:
        ca = f"ca={self.folder}/cert.pem"
        return f"kafkas://mainspring:correct@localhost:{self.port}?mechanism=SCRAM-SHA-512&{ca}"

    def format_options(self) -> list[str]:
        return ["--add-scram", f"SCRAM-SHA-512=[name={self.user},password={self.password}]"]

    def _settings(self) -> dict[str, object]:
        key, certificate = make_certificate(self.folder)
        pem = self.folder / "store.pem"
        pem.write_text(key.read_text() + certificate.read_text())
        plain = super()._settings()
        protocols = str(plain["listener.security.protocol.map"]).replace("CLIENTS:SASL_PLAINTEXT", "CLIENTS:SASL_SSL")
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        return plain | {
            "listener.security.protocol.map": protocols,
            "advertised.listeners": str(plain["advertised.listeners"]).replace(
                f"CLIENTS://127.0.0.1:{self.port}", f"CLIENTS://localhost:{self.port}"
            ),
            "listener.name.clients.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.clients.scram-sha-512.sasl.jaas.config": login,
            "listener.name.clients.ssl.keystore.type": "PEM",
            "listener.name.clients.ssl.keystore.location": pem,
        }
