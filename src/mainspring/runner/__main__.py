"""`python -m mainspring.runner FD TARGET...`: a runner that talks to its worker over the socket FD.

`--declare` instead of FD writes the jobs that the targets declare to stdout, and exits.
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

        sock = socket.socket(fileno=int(mode))
        sock.set_inheritable(False)
        RunnerServer(sock).run(targets)


if __name__ == "__main__":
    main()
