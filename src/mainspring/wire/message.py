"""The base types of every message, and the value types they share.

Instants are RFC 3339 in UTC; durations in responses are seconds or milliseconds, as the field name says.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """A response body: a frozen value."""


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request body; unknown fields are rejected."""


Instant = Annotated[datetime, msgspec.Meta(tz=True)]
"""An instant in a request; it must carry a UTC offset."""
