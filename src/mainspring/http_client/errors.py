"""Errors of HTTP requests.

    HttpError
    ├── ConnectFailed     there is no connection: the request was not sent
    ├── ConnectionLost    the connection broke before the response was complete
    ├── TimedOut          the server was silent for too long
    └── InvalidResponse   the response is not HTTP
        └── ResponseTooLarge

`InvalidRequest` is a `ValueError`: the caller passed something that cannot be sent.
"""

from __future__ import annotations


class HttpError(Exception):
    """There is no usable response."""


class ConnectFailed(HttpError):
    """No connection could be opened. The request was not sent."""


class ConnectionLost(HttpError):
    """The connection broke. `responded` says whether part of the response had arrived."""

    def __init__(self, message: str, *, responded: bool = True) -> None:
        super().__init__(message)
        self.responded = responded


class TimedOut(HttpError):
    """The server sent nothing for longer than the timeout."""


class InvalidResponse(HttpError):
    """The server sent something that is not an HTTP response."""


class ResponseTooLarge(InvalidResponse):
    """The response is larger than the caller accepts."""


class InvalidRequest(ValueError):
    """The URL, method or a header cannot be sent."""
