"""Bounds of what requests may contain: types of texts, numbers, lists and mappings that have a largest size.

The bounds are far above what users write. They keep the cost of a request proportional to its size, and appear in the
API reference as `maxLength`, `maxItems` and so on. Stricter rules, such as those of names, have messages of their own.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

MAX_NAME_CHARS = 256
MAX_LINE_CHARS = 4_000
MAX_TEXT_CHARS = 1_000_000
"""No text is longer than the largest body of most requests."""
MAX_ENTRIES = 1_000
"""Entries of a mapping that users write by hand: labels, headers, environment variables, parameters."""
MAX_VALUES = 10_000
"""Values by name in one mapping that programs write: parameters, arguments, metadata."""
MAX_SMALL_LIST = 100

Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARS)]
"""A name or an id; also the key of a mapping."""
Line = Annotated[str, msgspec.Meta(max_length=MAX_LINE_CHARS)]
"""A description, a message, a path."""
Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT_CHARS)]
"""A text of any length, such as a script; only the size of the request limits it."""
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]

Duration = Annotated[str, msgspec.Meta(max_length=100)] | Int64 | float
"""A duration as users write it: seconds, `10m` or ISO 8601."""
Size = Annotated[str, msgspec.Meta(max_length=40)] | Int64
"""An amount of memory or disk as users write it: bytes, or `512Mi`."""
Amount = Annotated[str, msgspec.Meta(max_length=40)] | Int64 | float
"""An amount of any resource as users write it."""

Texts = Annotated[dict[Name, Text], msgspec.Meta(max_length=MAX_ENTRIES)]
Labels = Annotated[dict[Name, Name], msgspec.Meta(max_length=MAX_ENTRIES)]
Amounts = Annotated[dict[Name, Amount], msgspec.Meta(max_length=MAX_SMALL_LIST)]
Values = Annotated[dict[Name, Any], msgspec.Meta(max_length=MAX_VALUES)]
"""Parameters, arguments, metadata: any JSON by name."""
