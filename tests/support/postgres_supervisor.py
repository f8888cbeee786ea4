"""Serves the given directory until stdin closes; tests run it as a process that they can kill."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from mainspring.embedded.errors import EmbeddedError
from mainspring.embedded.server import EmbeddedServer


async def main() -> None:
    server = EmbeddedServer(Path(sys.argv[1]))
    try:
        await server.start()
    except EmbeddedError as error:
        print(json.dumps({"code": error.code, "message": error.message}), flush=True)
        return
    print(json.dumps({"pid": server.pid, "dsn": server.dsn}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop()
    print(json.dumps({"stopped": True}), flush=True)


asyncio.run(main())
