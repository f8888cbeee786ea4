"""`mainspring worker`: execute jobs for a server."""

from __future__ import annotations

import asyncio
import os
import socket

import click
import structlog

from mainspring.cli.options import Options
from mainspring.cli.server_settings import log_option
from mainspring.client.discovery import discover
from mainspring.domain.errors import Invalid, Unauthenticated
from mainspring.process import die_with_parent, hide_environment, run, stop_signal
from mainspring.telemetry import logs
from mainspring.worker.capacity import detect, parse_capacity
from mainspring.worker.executors import load_executors
from mainspring.worker.executors.container_engine import find_engine
from mainspring.worker.service import Worker, WorkerConfig
from mainspring.worker.transport.api_client import ApiAddress

log = structlog.get_logger()


async def work_until_stopped(config: WorkerConfig) -> None:
    stop = stop_signal()
    service = Worker(config, load_executors(), echo=lambda words: click.echo(f" {words}", err=True))
    try:
        await service.start()
    except BaseException:
        await service.stop()
        raise
    stopped, refused = asyncio.create_task(stop.wait()), asyncio.create_task(service.refused())
    try:
        await asyncio.wait({stopped, refused}, return_when=asyncio.FIRST_COMPLETED)
        if refused.done():
            raise refused.result()
        await service.drain()
    finally:
        stopped.cancel()
        refused.cancel()
        await service.stop()


@click.command()
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
@click.option("--no-pull", is_flag=True, help="Use local container images only.")
@log_option
@click.option("--parent", type=int, hidden=True, help="End when this process does.")
@click.pass_obj
def worker(
    options: Options,
    queues: tuple[str, ...],
    slots: int,
    name: str | None,
    labels: tuple[str, ...],
    resources: str | None,
    shared: bool,
    drain: float,
    modules: tuple[str, ...],
    reload: bool,
    allow_net: tuple[str, ...],
    engine: str | None,
    poll: bool,
    no_pull: bool,
    level: str,
    parent: int | None,
) -> None:
    """Start a worker. It needs a token with the scope `worker`."""
    if parent is not None:
        die_with_parent(parent)
    hide_environment()
    logs.configure(level)
    server = discover(url=options.url, token=options.token)
    os.environ.pop("MAINSPRING_TOKEN", None)  # tasks inherit the environment
    if server.token is None:
        raise Unauthenticated("the worker has no token: set MAINSPRING_TOKEN, or pass mainspring --token TOKEN worker")
    config = WorkerConfig(
        address=ApiAddress(server.url, server.token),
        slots=slots,
        queues=queues,
        labels=dict(_label(text) for group in labels for text in group.split(",")),
        resources=detect() | _capacity(resources),
        shared=shared,
        drain_s=drain,
        modules=modules,
        reload=reload,
        allow_net=allow_net,
        name=name or socket.gethostname(),
        engine=find_engine(engine),
        pull=not no_pull,
        streams=not poll,
    )
    run(work_until_stopped(config))


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise Invalid(f"--label: {text!r} is not KEY=VALUE")
    return key, value


def _capacity(text: str | None) -> dict[str, int]:
    try:
        return parse_capacity(text or "")
    except ValueError as error:
        raise Invalid(f"--resources: {error}") from None
