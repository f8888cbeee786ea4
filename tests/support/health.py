"""Asks a process for its health, as a load balancer would."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True)
class Answer:
    """The status of an answer and its body; 0: no answer."""

    status: int
    body: Any = None


async def health(port: int, path: str = "/readyz", *, timeout_s: float = 5.0) -> Answer:
    return await asyncio.to_thread(get, f"http://127.0.0.1:{port}{path}", timeout_s)


def get(url: str, timeout_s: float) -> Answer:
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as response:
            return Answer(response.status, msgspec.json.decode(response.read()))
    except urllib.error.HTTPError as error:
        return Answer(error.code, msgspec.json.decode(error.read()))
    except OSError:
        return Answer(0)
