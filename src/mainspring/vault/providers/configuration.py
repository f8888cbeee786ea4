"""The provider file: which providers a server has, and which paths of each a tenant may refer to.

    [vault]
    kind = "vault"
    url = "https://vault.example.com:8200"
    token_file = "/run/mainspring/vault-token"
    allow = { default = ["apps/etl/*"] }

Without `allow`, no tenant can refer to anything: the file is the only place where that is granted.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import msgspec

from mainspring.domain.errors import Invalid
from mainspring.vault.providers.aws import AwsProvider, AwsSettings
from mainspring.vault.providers.contract import Provider
from mainspring.vault.providers.environment import EnvironmentProvider, EnvironmentSettings
from mainspring.vault.providers.file import FileProvider, FileSettings
from mainspring.vault.providers.guard import GuardedProvider
from mainspring.vault.providers.kv import KvProvider, KvSettings

ENTRY_POINT_GROUP = "mainspring.secret_providers"
MAX_FILE_BYTES = 65_536
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")
BUILT_IN: Mapping[str, tuple[Any, Any]] = {
    "environment": (EnvironmentProvider, EnvironmentSettings),
    "file": (FileProvider, FileSettings),
    "vault": (KvProvider, KvSettings),
    "aws": (AwsProvider, AwsSettings),
}

Pattern = Annotated[str, msgspec.Meta(min_length=1, max_length=500, pattern=r"^[^*\s]*\*?$")]


class _Common(msgspec.Struct, frozen=True):
    """Settings of every provider."""

    kind: str
    allow: dict[str, list[Pattern]] = {}
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=60)] = 5.0
    cache_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 60.0


def read_providers(file: Path) -> dict[str, GuardedProvider]:
    """Read a provider file. Raises Invalid with the place of what is wrong."""
    try:
        with file.open("rb") as opened:
            content = tomllib.loads(opened.read(MAX_FILE_BYTES).decode())
    except OSError as error:
        raise Invalid(f"cannot read the provider file {file}: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Invalid(f"{file} is not a TOML file: {error}") from None
    return {name: _provider(f"{file}: [{name}]", name, table) for name, table in content.items()}


def _provider(place: str, name: str, table: Any) -> GuardedProvider:
    if not isinstance(table, dict) or not _NAME.match(name):
        raise Invalid(f"{place}: a provider is a table named with lower-case letters, digits, '_' and '-'")
    given = {key: value for key, value in table.items() if key not in _Common.__struct_fields__}
    try:
        common = msgspec.convert(table, _Common)
        provider = _created(common.kind, given)
    except msgspec.ValidationError as error:
        raise Invalid(f"{place}: {error}") from None
    except Invalid as error:
        raise Invalid(f"{place}: {error.message}") from None
    return GuardedProvider(name, provider, common.allow, timeout_s=common.timeout_s, cache_s=common.cache_s)


def _created(kind: str, given: dict[str, Any]) -> Provider:
    if kind in BUILT_IN:
        factory, settings = BUILT_IN[kind]
        created: Provider = factory(msgspec.convert(given, settings))
        return created
    points = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if kind not in points:
        raise Invalid(f"unknown kind {kind!r}; known: {', '.join([*BUILT_IN, *sorted(points)])}")
    made: Provider = points[kind].load()(given)
    return made
