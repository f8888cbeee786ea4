"""The image: built by Podman from the project's Dockerfile, without a registry or a network, and run in two roles."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest

from mainspring.api.auth import issue_token
from mainspring.domain.grants import EVERYTHING
from mainspring.domain.job import JobSpec, ShellTask
from mainspring.domain.schedule.schedule import ScheduleSpec
from mainspring.embedded.server import EmbeddedServer
from mainspring.intake import jobs
from mainspring.store.db import Database
from tests.support import compose
from tests.support.container_engines import Podman, needed
from tests.support.host_image import base_image, wheels
from tests.support.processes import until_async
from tools.tree import ROOT

pytestmark = pytest.mark.anyio

USER = "10001"
MOST_MB = 300
LIMITS = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096")
"""Podman asks for more than it may have where it is itself confined."""
OUTPUT = """
SELECT state, data FROM history JOIN log_chunks USING (execution_id) WHERE state = 'succeeded' LIMIT 1"""


@dataclass
class Engine:
    """Podman with a storage folder of its own."""

    folder: Path
    containers: list[str] = field(default_factory=list)

    def run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        places = ("--root", str(self.folder / "root"), "--runroot", str(self.folder / "run"), "--runtime", "runc")
        options = ("--storage-driver", "overlay", "--cgroup-manager", "cgroupfs", "--events-backend", "file")
        done = subprocess.run(
            ["podman", *places, *options, *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0 or not check, (
            f"podman {' '.join(words)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
        return done

    def start(self, name: str, options: tuple[str, ...], *command: str) -> None:
        """Start a container as confined as compose file and chart have it."""
        confined = (
            "--read-only",
            "--tmpfs",
            "/tmp",
            "--cap-drop",
            "all",
            "--security-opt",
            "no-new-privileges",
            *LIMITS,
        )
        self.containers.append(name)
        self.run("run", "--detach", "--name", name, *confined, *options, "localhost/mainspring", *command)

    async def healthy(self, name: str) -> None:
        """Wait until the health check of the image passes in the container."""

        async def passes() -> bool:
            running = self.run("inspect", "--format", "{{.State.Running}}", name).stdout.strip()
            assert running == "true", self.run("logs", name).stderr
            return self.run("healthcheck", "run", name, check=False).returncode == 0

        await until_async(f"{name} is healthy", passes, within_s=60)

    def close(self) -> None:
        for name in reversed(self.containers):  # one whose network another uses is removed after that
            self.run("rm", "--force", "--time", "0", name, check=False)
        self.run("rmi", "--all", "--force", check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """An engine that has built the image, from a copy of this machine's Debian packages and downloaded wheels."""
    needed(Podman)
    found = Engine(Path(tempfile.mkdtemp(prefix="mainspring-image-")))
    try:
        found.run("import", str(base_image(found.folder / "base.tar")), "localhost/base")
        offline = ("--pull-never", "--network", "none", "--volume", f"{wheels()}:/wheels:ro")
        names = ("--build-arg", "BASE=localhost/base", "--tag", "localhost/mainspring")
        found.run("build", "--format", "docker", *offline, *names, "--file", "deploy/Dockerfile", ".")
        yield found
    finally:
        found.close()


def test_the_image_is_small_and_has_a_user_and_a_health_check(engine: Engine) -> None:
    (image,) = json.loads(engine.run("image", "inspect", "localhost/mainspring").stdout)
    assert image["Config"]["User"] == f"{USER}:{USER}"
    assert image["Healthcheck"]["Test"][0] == "CMD"
    assert image["Size"] < MOST_MB * 2**20
    (base,) = json.loads(engine.run("image", "inspect", "localhost/base").stdout)
    print(f"{image['Size'] / 2**20:.0f} MB, of which {base['Size'] / 2**20:.0f} MB are the base")


def test_the_program_cannot_be_changed_by_its_user(engine: Engine) -> None:
    script = "find / -xdev -writable -type f -not -path '/proc/*' -not -path '/var/lib/mainspring/*' | head; id -u"
    found = engine.run(
        "run",
        "--rm",
        *LIMITS,
        "--no-healthcheck",
        "--network",
        "none",
        "--entrypoint",
        "sh",
        "localhost/mainspring",
        "-c",
        script,
    )
    assert [line for line in found.stdout.split() if not line.startswith(("/dev/", "/sys/"))] == [USER]


def test_the_image_has_the_optional_packages_that_the_chart_uses(engine: Engine) -> None:
    code = "import apprise, confluent_kafka, kazoo, lightkube, obstore, opentelemetry.sdk, redis"
    words = ("--entrypoint", "python3", "localhost/mainspring", "-c", code)
    engine.run("run", "--rm", *LIMITS, "--no-healthcheck", "--network", "none", *words)


async def test_server_and_worker_of_the_image_run_a_job(
    engine: Engine, postgres: EmbeddedServer, database_url: str, tmp_path: Path
) -> None:
    sockets = Path(parse_qs(urlsplit(database_url).query)["host"][0])
    let_in(sockets)
    async with Database(database_url, size=2) as database:
        async with database.connection() as connection:
            token = await issue_token(connection, tenant=1, name="w", scopes=("worker",), grants=EVERYTHING)
        secret = ("--volume", f"{private(tmp_path / 'url', database_url)}:/run/secrets/url:ro")
        places = ("--network", "none", "--volume", f"{sockets}:{sockets}")
        variables = ("--env", "MAINSPRING_DATABASE_URL_FILE=/run/secrets/url")
        engine.start("server", (*secret, *places, *variables, "--tmpfs", "/var/lib/mainspring:U,mode=700"), "serve")
        await engine.healthy("server")
        secret = ("--volume", f"{private(tmp_path / 'token', token)}:/run/secrets/token:ro")
        address = (
            "--env",
            "MAINSPRING_URL=http://127.0.0.1:7171",
            "--env",
            "MAINSPRING_TOKEN_FILE=/run/secrets/token",
        )
        # In the network of the server, so with another health port.
        other = ("--env", "MAINSPRING_HEALTH_PORT=7173")
        engine.start("worker", (*secret, "--network", "container:server", *address, *other), "worker", "--slots", "2")
        await engine.healthy("server")
        spec = JobSpec(name="who", task=ShellTask(argv=("id", "-u")), schedule=ScheduleSpec(every=1))
        await jobs.create(database, spec, tenant=1, by="test")

        async def printed() -> bool:
            async with database.connection() as connection:
                found = await connection.fetchrow(OUTPUT)
            return found is not None and (found["state"], found["data"].strip()) == ("succeeded", USER.encode())

        await until_async("a job has run as the user of the image", printed, within_s=60)
    engine.run("stop", "--time", "30", "worker", "server")
    for name in ("worker", "server"):
        assert engine.run("inspect", "--format", "{{.State.ExitCode}}", name).stdout.strip() == "0", name


async def test_the_services_of_the_compose_file_come_up_run_a_job_and_stop(engine: Engine, tmp_path: Path) -> None:
    """With one replica of each, in one network namespace; without the TLS proxy, whose image is not available here."""
    base = base_image(engine.folder / "postgres.tar", compose.POSTGRES_PACKAGES, compose.POSTGRES_FILES)
    engine.run("import", "--change", 'ENTRYPOINT ["/usr/local/bin/entrypoint"]', str(base), "localhost/postgres")
    top = compose.content()
    secrets = secrets_of_compose(tmp_path)

    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost postgres server\n")
    named = ("--no-hosts", "--volume", f"{hosts}:/etc/hosts:ro")

    def start(name: str, network: str, *more: str) -> None:
        service = top["services"][name]
        image = "localhost/postgres" if name == "postgres" else "localhost/mainspring"
        engine.containers.append(name := f"compose-{name}")
        words = [
            *compose.options(service, top, secrets),
            *more,
            *named,
            *LIMITS,
            "--network",
            network,
            "--name",
            name,
            image,
        ]
        engine.run("run", "--detach", *words, *service["command"])

    start("postgres", "none")
    await engine.healthy("compose-postgres")
    start("server", "container:compose-postgres")
    await engine.healthy("compose-server")
    printed = engine.run("logs", "compose-server").stdout
    (admin,) = re.findall(r"^\s+(ms_\S+)$", printed, re.MULTILINE)
    inside = ("exec", "--env", f"MAINSPRING_TOKEN={admin}", "compose-server", "mainspring")
    token = engine.run(*inside, "workers", "token", "fleet", "--queue", "short", "--queue", "long").stdout
    (secrets / "worker.token").write_text(token)  # keeps owner and mode, as a redirection by root does
    start("worker", "container:compose-postgres", "--env", "MAINSPRING_HEALTH_PORT=7173")
    await engine.healthy("compose-worker")
    engine.run(*inside, "add", "who", "--", "id", "-u")
    run = engine.run(*inside, "run", "who", "--follow")
    assert USER in run.stdout
    for name in ("compose-worker", "compose-server", "compose-postgres"):
        engine.run("stop", "--time", "75", name)
        assert engine.run("inspect", "--format", "{{.State.ExitCode}}", name).stdout.strip() == "0", name


def secrets_of_compose(folder: Path) -> Path:
    """The folder that the first lines of the compose file create."""
    secrets = folder / "secrets"
    secrets.mkdir(mode=0o700)
    password, key = uuid4().hex, secrets / "secret-keys"
    subprocess.run([sys.executable, "-m", "mainspring.cli.main", "secrets", "new-key", key], check=True)
    private(key, key.read_text())
    private(secrets / "postgres-password", password + "\n")
    private(secrets / "database-url", f"postgresql://mainspring:{password}@postgres/mainspring\n")
    private(secrets / "worker.token", "")
    return secrets


async def test_the_health_check_fails_without_a_database(engine: Engine, tmp_path: Path) -> None:
    """The process stays, so that it recovers by itself; the reason is in the body of /readyz."""
    url = private(tmp_path / "url", "postgresql://nobody@127.0.0.1:9/none")
    options = ("--network", "none", "--volume", f"{url}:/run/secrets/url:ro")
    variables = ("--env", "MAINSPRING_DATABASE_URL_FILE=/run/secrets/url")
    engine.start("lonely", (*options, *variables), "serve", "--roles", "scheduler")
    assert engine.run("healthcheck", "run", "lonely", check=False).returncode != 0


def private(path: Path, content: str) -> Path:
    """A secret file as servers demand it: readable for the user of the image only."""
    path.write_text(content)
    path.chmod(0o400)
    os.chown(path, int(USER), int(USER))
    return path


def let_in(sockets: Path) -> None:
    """Let the user of the image connect to the server of the tests."""
    sockets.chmod(0o755)
    for socket in sockets.glob(".s.PGSQL.*"):
        if socket.is_socket():
            socket.chmod(0o777)
