"""Runs `mainspring` commands in forks of one process that has imported everything: a tenth of the time of a start.

`python -m tests.support.command_server SOCKET` serves; the program that `command_server` writes is called
instead of `mainspring` and passes its arguments, environment, folder and standard streams on.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import AsyncIterator
from pathlib import Path

_CLIENT = """#!{python} -ISE
import json, os, socket, struct, sys
server = socket.socket(socket.AF_UNIX)
server.connect({socket!r})
request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [struct.pack("!I", len(request))], [0, 1, 2])
server.sendall(request)
sys.exit(int(server.recv(16) or b"70"))
"""


@contextlib.asynccontextmanager
async def command_server(folder: Path) -> AsyncIterator[Path]:
    """Write a `mainspring` into the folder, for PATH, and serve it by a process of its own."""
    address = folder / "socket"
    _install(folder / "mainspring", address)
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.command_server", str(address), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        assert await server.stdout.readline() == b"ready\n"
        yield folder
    finally:
        server.terminate()
        await server.wait()


def _install(program: Path, address: Path) -> None:
    program.write_text(_CLIENT.format(python=sys.executable, socket=str(address)))
    program.chmod(0o755)


def serve(address: str) -> None:
    from mainspring.cli.main import COMMANDS

    for module, _ in COMMANDS.values():
        importlib.import_module(f"mainspring.cli.{module}")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended children are not waited for
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            code = _execute(connection)
            connection.sendall(str(code).encode())
            os._exit(0)
        connection.close()


def _execute(connection: socket.socket) -> int:
    from mainspring.cli.main import main

    head, streams, _, _ = socket.recv_fds(connection, 4, 3)
    (size,) = struct.unpack("!I", head)
    request = b""
    while len(request) < size:
        request += connection.recv(size - len(request))
    arguments, folder, environment = json.loads(request)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["mainspring", *arguments]
    try:
        main(prog_name="mainspring")
    except SystemExit as end:
        code = end.code
    else:
        code = 0
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return code if isinstance(code, int) else int(code is not None)


if __name__ == "__main__":
    serve(sys.argv[1])
