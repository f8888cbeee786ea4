"""AWS Secrets Manager: the current version of a secret, by name or ARN.

Credentials come from a file in the format of the AWS tools, which is read at each request, or from the environment.
"""

from __future__ import annotations

import configparser
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from mainspring.clock import Clock, SystemClock, instant
from mainspring.domain.errors import Invalid
from mainspring.http_client import Response
from mainspring.vault.providers.contract import ProviderFailed
from mainspring.vault.providers.http_source import MAX_ANSWER_BYTES, field_of, open_client
from mainspring.vault.providers.sigv4 import Credentials, signed_headers

MAX_FILE_BYTES = 65_536
_REGION = re.compile(r"[a-z0-9-]{1,50}\Z")
_REASONS = {
    "ResourceNotFoundException": "there is nothing at {}",
    "AccessDeniedException": "its credentials have no permission for {}",
    "UnrecognizedClientException": "its credentials are not valid",
    "InvalidSignatureException": "its credentials or the clock of this server are not valid",
    "ExpiredTokenException": "its credentials have expired",
    "ThrottlingException": "it is overloaded",
}


class AwsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`endpoint` replaces the public one of the region; without `credentials_file`, the environment has them."""

    region: str
    endpoint: str | None = None
    credentials_file: str | None = None
    profile: str = "default"
    ca_file: str | None = None


class _Answer(msgspec.Struct):
    text: str | None = msgspec.field(name="SecretString", default=None)


class _Refusal(msgspec.Struct):
    type: str = msgspec.field(name="__type", default="")


class AwsProvider:
    """The path is the name or ARN of a secret; with `#` and a field, its value is JSON and the field is read."""

    def __init__(self, settings: AwsSettings, *, clock: Clock | None = None) -> None:
        if not _REGION.match(settings.region):
            raise Invalid("region must be the name of a region, such as eu-west-1")
        url = settings.endpoint or f"https://secretsmanager.{settings.region}.amazonaws.com"
        self._settings = settings
        self._host = urlsplit(url).netloc
        self._http = open_client(url, ca_file=settings.ca_file)
        self._clock = clock or SystemClock()

    async def read(self, path: str) -> str:
        place, _, field = path.partition("#")
        body = msgspec.json.encode({"SecretId": place, "VersionStage": "AWSCURRENT"})
        headers = {
            "Host": self._host,
            "Content-Type": "application/x-amz-json-1.1",
            "X-Amz-Target": "secretsmanager.GetSecretValue",
        }
        at, region = instant(self._clock.now_ms()), self._settings.region
        signed = signed_headers(headers, body, self._credentials(), region=region, service="secretsmanager", at=at)
        del signed["host"]  # the client sends it
        answer = await self._http.request(
            "POST", "/", body, headers=signed, max_bytes=MAX_ANSWER_BYTES, repeatable=True
        )
        text = _text(answer, place)
        return text if not field else field_of(_fields(text, place), field, place)

    async def close(self) -> None:
        self._http.close()

    def _credentials(self) -> Credentials:
        if self._settings.credentials_file is None:
            found: Any = {name.lower(): value for name, value in os.environ.items() if name.startswith("AWS_")}
        else:
            found = self._profile(Path(self._settings.credentials_file))
        access, secret = found.get("aws_access_key_id"), found.get("aws_secret_access_key")
        if not access or not secret:
            raise ProviderFailed("it has no credentials: set credentials_file, or AWS_ACCESS_KEY_ID and its secret")
        return Credentials(access, secret, found.get("aws_session_token"))

    def _profile(self, file: Path) -> Any:
        parser = configparser.ConfigParser(interpolation=None)
        try:
            with file.open("rb") as opened:
                parser.read_string(opened.read(MAX_FILE_BYTES).decode())
            return parser[self._settings.profile]
        except (OSError, UnicodeDecodeError, configparser.Error, KeyError):
            profile = self._settings.profile
            raise ProviderFailed(f"cannot read the profile {profile} in the credentials file {file}") from None


def _text(answer: Response, place: str) -> str:
    """Return the value. Answers with an error have none, and are not quoted."""
    try:
        if answer.status != 200:
            kind = msgspec.json.decode(answer.body, type=_Refusal).type.rpartition("#")[2]
            reason = _REASONS.get(kind, f"it answered {answer.status} for {{}}")
            raise ProviderFailed(reason.format(place))
        text = msgspec.json.decode(answer.body, type=_Answer).text
    except msgspec.MsgspecError:
        raise ProviderFailed(f"it answered {answer.status} without JSON") from None
    if text is None:
        raise ProviderFailed(f"{place} is binary; store text")
    return text


def _fields(text: str, place: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        raise ProviderFailed(f"{place} is not a JSON object, so it has no fields") from None
