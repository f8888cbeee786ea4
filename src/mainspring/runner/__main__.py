"""A runner: `python -m mainspring.runner CALLS,CONTROL,MEMORY FOLDER TARGET...`, with descriptors from its worker.

`--declare` instead of the descriptors writes the jobs that the targets declare to stdout, and exits.
"""

from __future__ import annotations

import os
import socket
import sys


def main() -> None:
    mode, *targets = sys.argv[1:]
    # Modules are found relative to the folder in which the worker was started.
    sys.path[:] = [os.getcwd(), *(entry for entry in sys.path if entry not in ("", os.getcwd()))]
    sys.argv[:] = ["mainspring-runner"]
    if mode == "--declare":
        from mainspring.runner.declare import declare

        declare(targets)
    else:
        from mainspring.runner.serve import RunnerServer
        from mainspring.runner_memory import RunnerMemory

        calls, control, memory = map(int, mode.split(","))
        folder, *targets = targets
        RunnerServer(_socket(calls), _socket(control), RunnerMemory(memory), folder).run(targets)


def _socket(descriptor: int) -> socket.socket:
    sock = socket.socket(fileno=descriptor)
    sock.set_inheritable(False)
    return sock


if __name__ == "__main__":
    main()
