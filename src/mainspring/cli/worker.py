"""`mainspring worker`: execute jobs for a server."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from pathlib import Path

import click
import structlog

from mainspring.backends.kafka_engines import open_results
from mainspring.cli.config_file import config_option
from mainspring.cli.options import Options
from mainspring.cli.output import echo
from mainspring.cli.private_file import MAX_SECRET_CHARS, read_private
from mainspring.cli.server_settings import health_options, log_option, otlp_option
from mainspring.client.discovery import discover
from mainspring.domain.errors import Invalid, Unauthenticated
from mainspring.domain.placement.demand import SPOT
from mainspring.domain.placement.isolation import LEVELS, MinIsolation
from mainspring.health.readiness import Readiness
from mainspring.health.server import HealthServer
from mainspring.process import die_with_parent, erase_secret, hide_memory, run, stop_signal
from mainspring.service import Service
from mainspring.telemetry import logs
from mainspring.telemetry.exposition import exposition
from mainspring.worker.capacity import detect, parse_capacity
from mainspring.worker.environment import INHERITED, check_names
from mainspring.worker.executors import load_executors
from mainspring.worker.executors.container_engine import find_engine
from mainspring.worker.executors.pods.cluster import ClusterSettings
from mainspring.worker.executors.pods.settings import NAMESPACE, AllowList
from mainspring.worker.service import Worker, WorkerConfig
from mainspring.worker.transport.api_client import ApiAddress

log = structlog.get_logger()


async def work_until_stopped(
    config: WorkerConfig, stream: Service | None = None, *, health_host: str, health_port: int | None
) -> None:
    stop, readiness = stop_signal(), Readiness()
    service = Worker(config, load_executors(), echo=lambda words: echo(f" {words}", err=True))
    readiness.add("api", service.not_ready)
    await readiness.start()
    try:
        if health_port is not None:
            await HealthServer(readiness, host=health_host, port=health_port, metrics=exposition).start()
        if stream is not None:
            await stream.start()
        await service.start()
        readiness.starting = False
    except BaseException:
        await service.stop()
        raise
    stopped, refused = asyncio.create_task(stop.wait()), asyncio.create_task(service.refused())
    try:
        await asyncio.wait({stopped, refused}, return_when=asyncio.FIRST_COMPLETED)
        if refused.done():
            raise refused.result()
        readiness.stopping = True
        await service.drain()
    finally:
        stopped.cancel()
        refused.cancel()
        await service.stop()
        if stream is not None:
            await stream.stop()


@click.command()
@config_option
@click.option(
    "--url", envvar="MAINSPRING_URL", show_envvar=True, metavar="URL", help="Address of the server, or of its proxy."
)
@click.option(
    "-q",
    "--queue",
    "queues",
    multiple=True,
    default=("short", "long"),
    show_default=True,
    metavar="NAME",
    help="Queue to serve. Repeatable.",
)
@click.option(
    "--slots",
    default=8,
    show_default=True,
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="Maximum concurrent attempts.",
)
@click.option("--name", metavar="NAME", help="Worker name.  [default: the host name]")
@click.option(
    "--label",
    "--labels",
    "labels",
    multiple=True,
    metavar="KEY=VALUE,...",
    help="Labels that jobs can require. Repeatable.",
)
@click.option("--spot", is_flag=True, help="This machine may be taken away: run only jobs that allow spot workers.")
@click.option("--resources", metavar="KEY=VALUE,...", help="Capacity, such as cpu=4,gpu=1; overrides what is detected.")
@click.option("--shared", is_flag=True, help="Serve every tenant. The token needs the scope `shared`.")
@click.option(
    "--drain", default=60.0, show_default=True, metavar="SECONDS", help="Time to finish running attempts at shutdown."
)
@click.option(
    "-m",
    "--module",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="Module, file or folder with job functions, whose jobs are registered. Repeatable.",
)
@click.option("--reload", is_flag=True, help="Reload modules when their files change.")
@click.option(
    "--allow-net",
    "allow_net",
    multiple=True,
    metavar="CIDR",
    envvar="MAINSPRING_ALLOW_NET",
    show_envvar=True,
    help="Private network that http tasks may call, such as 10.0.0.0/8. Repeatable.",
)
@click.option(
    "--engine",
    metavar="SOCKET",
    envvar="MAINSPRING_ENGINE",
    show_envvar=True,
    help="Unix socket of the container engine, or `auto` to find Podman or Docker.  [default: no containers]",
)
@click.option(
    "--poll",
    is_flag=True,
    envvar="MAINSPRING_POLL",
    show_envvar=True,
    help="Receive work by long polls only, for proxies that do not pass streams on.",
)
@click.option(
    "--min-isolation",
    type=click.Choice(LEVELS),
    default="none",
    show_default=True,
    envvar="MAINSPRING_MIN_ISOLATION",
    show_envvar=True,
    help="Least isolation of programs and functions, whatever jobs and queues say.",
)
@click.option("--no-pull", is_flag=True, help="Use local container images only.")
@click.option(
    "--kube-namespace",
    metavar="NAME",
    envvar="MAINSPRING_KUBE_NAMESPACE",
    show_envvar=True,
    help="Namespace of a Kubernetes cluster in which to run pods, with the extra `kubernetes`.  [default: no pods]",
)
@click.option(
    "--kube-context",
    metavar="NAME",
    envvar="MAINSPRING_KUBE_CONTEXT",
    show_envvar=True,
    help="Context of the kubeconfig.  [default: the service account of the worker's pod, or the current context]",
)
@click.option(
    "--kube-allow",
    "kube_allow",
    multiple=True,
    metavar="KIND=NAME",
    envvar="MAINSPRING_KUBE_ALLOW",
    show_envvar=True,
    help="What pods may use besides their image, such as claim=scratch-*. Repeatable.",
)
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    envvar="MAINSPRING_TOKEN_FILE",
    show_envvar=True,
    help="File with the token, which other users must not be able to read.",
)
@click.option(
    "--token-fd",
    type=click.IntRange(3),
    metavar="N",
    help="Open file descriptor to read the token from. Jobs can't read a file that only its opener can.",
)
@click.option(
    "--results",
    envvar="MAINSPRING_RESULTS",
    show_envvar=True,
    metavar="URL",
    help="Engine that keeps results while the api is unavailable: kafka://HOST/PREFIX, with the extra `kafka`.  "
    "[default: memory]",
)
@click.option(
    "--pass-env",
    "pass_env",
    multiple=True,
    metavar="NAME",
    envvar="MAINSPRING_PASS_ENV",
    show_envvar=True,
    help=f"Environment variable that jobs inherit besides {', '.join(INHERITED)}; AWS_* for a prefix. Repeatable.",
)
@health_options
@otlp_option
@log_option
@click.option("--parent", type=int, hidden=True, help="End when this process does.")
@click.pass_obj
def worker(
    options: Options,
    url: str | None,
    queues: tuple[str, ...],
    slots: int,
    name: str | None,
    labels: tuple[str, ...],
    spot: bool,
    resources: str | None,
    shared: bool,
    drain: float,
    modules: tuple[str, ...],
    reload: bool,
    allow_net: tuple[str, ...],
    engine: str | None,
    poll: bool,
    min_isolation: MinIsolation,
    no_pull: bool,
    kube_namespace: str | None,
    kube_context: str | None,
    kube_allow: tuple[str, ...],
    token_file: Path | None,
    token_fd: int | None,
    results: str | None,
    pass_env: tuple[str, ...],
    otlp_endpoint: str | None,
    level: str,
    health_host: str,
    health_port: int | None,
    parent: int | None,
) -> None:
    """Start a worker. It needs a token with the scope `worker`."""
    if parent is not None:
        die_with_parent(parent)
    hide_memory()
    logs.configure(level)
    check_names(pass_env)
    token = options.token or read_token(token_file, token_fd)
    server = discover(url=options.url or url, token=token)
    os.environ.pop("MAINSPRING_TOKEN", None)
    if server.token is None:
        raise Unauthenticated("the worker has no token: pass --token-file FILE, or set MAINSPRING_TOKEN")
    erase_secret(server.token)
    stream = open_results(results, prefix=None)
    config = WorkerConfig(
        address=ApiAddress(server.url, server.token),
        slots=slots,
        queues=queues,
        labels=_labels(labels, spot=spot),
        resources=detect() | given_capacity(resources),
        shared=shared,
        drain_s=drain,
        modules=modules,
        reload=reload,
        allow_net=allow_net,
        name=name or socket.gethostname(),
        engine=find_engine(engine),
        pull=not no_pull,
        cluster=given_cluster(kube_namespace, kube_context, kube_allow),
        streams=not poll,
        min_isolation=min_isolation,
        adopts_orphans=True,
        pass_env=pass_env,
        otlp_endpoint=otlp_endpoint,
        results=stream,
    )
    run(work_until_stopped(config, stream, health_host=health_host, health_port=health_port))


def read_token(file: Path | None, descriptor: int | None) -> str | None:
    """Read the token from a file or an open descriptor; None if neither is given."""
    if file is not None and descriptor is not None:
        raise click.UsageError("--token-file and --token-fd exclude each other")
    if file is not None:
        return read_private(file, "token")
    if descriptor is None:
        return None
    try:
        with os.fdopen(descriptor, encoding="utf-8") as opened:
            return opened.read(MAX_SECRET_CHARS).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Unauthenticated(f"cannot read the token from descriptor {descriptor}: {error}") from None


def parse_label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise Invalid(f"--label: {text!r} is not KEY=VALUE")
    return key, value


def given_capacity(text: str | None) -> dict[str, int]:
    try:
        return parse_capacity(text or "")
    except ValueError as error:
        raise Invalid(f"--resources: {error}") from None


def given_cluster(namespace: str | None, context: str | None, allow: tuple[str, ...]) -> ClusterSettings | None:
    """Return where pods run; None without a namespace."""
    if namespace is None:
        if context is not None or allow:
            raise Invalid("--kube-context and --kube-allow need --kube-namespace")
        return None
    if not NAMESPACE.match(namespace):
        raise Invalid(f"--kube-namespace: {namespace!r} is not a namespace; lower case letters, digits and '-'")
    AllowList(allow)
    return ClusterSettings(namespace, context, allow)


def _labels(given: Sequence[str], *, spot: bool) -> dict[str, str]:
    labels = dict(parse_label(text) for group in given for text in group.split(","))
    return labels | ({SPOT: "yes"} if spot else {})
