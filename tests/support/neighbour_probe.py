"""Two programs for tests of isolation: a victim that has things of its own, and a neighbour that looks for them.

`victim` as the argument prints where it keeps a secret, as JSON, and runs until it is ended. `probe` as the argument
gets that in the variable KNOWN, as if the victim had given everything away, and prints what it reached.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any


def victim(secret: str) -> None:
    folder = os.environ["TMPDIR"]
    name = f"mainspring-{os.getpid()}-{time.time_ns()}"
    files = {
        "folder": f"{folder}/private",
        "artifact": f"{os.environ['MAINSPRING_ARTIFACTS']}/private",
        "checkpoint": os.environ["MAINSPRING_CHECKPOINT"],
        "shared memory": f"/dev/shm/{name}",
    }
    for path in files.values():
        with open(path, "w") as file:
            file.write(secret)
    sockets: dict[str, Any] = {"socket": f"{folder}/s", "abstract socket": f"\0{name}", "loopback": ("127.0.0.1", 0)}
    listening = {}
    for kind, address in sockets.items():
        listening[kind] = socket.socket(socket.AF_INET if kind == "loopback" else socket.AF_UNIX)
        listening[kind].bind(address)
        listening[kind].listen()
    sockets["loopback"] = listening["loopback"].getsockname()
    print(json.dumps({"files": files, "sockets": sockets, "secret": secret}), flush=True)
    try:
        signal.pause()
    finally:
        with contextlib.suppress(OSError):
            os.unlink(files["shared memory"])


def probe(known: dict[str, Any]) -> None:
    secret, reached = known["secret"].encode(), []
    checks: dict[str, Callable[[], bool]] = {
        **{place: lambda path=path: has(path, secret) for place, path in known["files"].items()},  # type: ignore[misc]
        **{kind: lambda address=address: connects(address) for kind, address in known["sockets"].items()},  # type: ignore[misc]
        "environment": lambda: any(has(path, b"SECRET=" + secret) for path in glob.glob("/proc/[0-9]*/environ")),
        "working directory": lambda: any(has(path, secret) for path in glob.glob("/proc/[0-9]*/cwd/private")),
        "memory": lambda: any(opens_memory(path) for path in glob.glob("/proc/[0-9]*/environ") if has(path, secret)),
        "search": lambda: any(has(path, secret) for path in glob.glob(f"{known['search']}/*/*/private")),
    }
    for name, check in checks.items():
        with contextlib.suppress(OSError):
            if check():
                reached.append(name)
    print(json.dumps(sorted(reached)))


def has(path: str, secret: bytes) -> bool:
    if f"/{os.getpid()}/" in path or path.startswith("/proc/self/"):
        return False
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return secret in file.read()
    return False


def opens_memory(environ: str) -> bool:
    with contextlib.suppress(OSError), open(environ.replace("environ", "mem"), "rb"):
        return True
    return False


def connects(address: Any) -> bool:
    with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as connecting:
        connecting.settimeout(5)
        connecting.connect(address if isinstance(address, str) else tuple(address))
        return True


if __name__ == "__main__":
    victim(os.environ["SECRET"]) if sys.argv[1] == "victim" else probe(json.loads(os.environ["KNOWN"]))
