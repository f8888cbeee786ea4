"""HTTP/1.1 client for the Mainspring API, tasks and notifications.

    client = HttpClient("https://api.example", {"Authorization": "Bearer ..."})
    response = await client.request("GET", "/api/v1/jobs")

`BlockingNetwork` makes the same client work without an event loop: `finish(client.request(...))`.
"""

from mainspring.http_client.blocking_network import BlockingNetwork, finish
from mainspring.http_client.client import HttpClient, StreamedResponse
from mainspring.http_client.errors import (
    ConnectFailed,
    ConnectionLost,
    HttpError,
    InvalidRequest,
    InvalidResponse,
    ResponseTooLarge,
    TimedOut,
)
from mainspring.http_client.response import Head, Response

__all__ = [
    "BlockingNetwork",
    "ConnectFailed",
    "ConnectionLost",
    "Head",
    "HttpClient",
    "HttpError",
    "InvalidRequest",
    "InvalidResponse",
    "Response",
    "ResponseTooLarge",
    "StreamedResponse",
    "TimedOut",
    "finish",
]
