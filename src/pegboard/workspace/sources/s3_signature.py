"""S3 signature: signs a request to an S3-compatible service."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

from pegboard.model.record import CarriesCredentials
from pegboard.model.secret import Secret

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_NO_BODY: Final = hashlib.sha256(b"").hexdigest()


class S3Keys(CarriesCredentials, frozen=True, kw_only=True):
    """The keys of an account, and the region that requests are signed for."""

    access_key: str
    secret_key: Secret
    session_token: Secret | None = None
    region: str = "us-east-1"


def signed_headers(url: str, keys: S3Keys, *, now: datetime) -> dict[str, str]:
    """Return the headers of a GET of a URL whose path and query are encoded already.

    Source: AWS, "Signature Version 4 for API requests", the form for S3, which encodes paths once.
    """
    parts = urlsplit(url)
    stamp = now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": parts.netloc, "x-amz-content-sha256": _NO_BODY, "x-amz-date": stamp}
    if keys.session_token is not None:
        headers["x-amz-security-token"] = keys.session_token.reveal()
    names = ";".join(sorted(headers))
    query = sorted((_quoted(name), _quoted(value)) for name, value in parse_qsl(parts.query, keep_blank_values=True))
    request = "\n".join(
        (
            "GET",
            parts.path or "/",
            "&".join(f"{name}={value}" for name, value in query),
            *(f"{name}:{headers[name]}" for name in sorted(headers)),
            "",
            names,
            _NO_BODY,
        )
    )
    scope = f"{stamp[:8]}/{keys.region}/s3/aws4_request"
    text = "\n".join((_ALGORITHM, stamp, scope, hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{keys.secret_key.reveal()}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    authorization = f"{_ALGORITHM} Credential={keys.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    # The client sets `host`.
    return {**_without_host(headers), "authorization": authorization}


def query_of(values: Mapping[str, str]) -> str:
    """Return a query string, encoded as it is signed."""
    return "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in sorted(values.items()))


def path_of_key(key: str) -> str:
    """Return the path of an object, encoded as it is signed."""
    return quote(key, safe="/-_.~")


def _quoted(text: str) -> str:
    return quote(text, safe="-_.~")


def _without_host(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name != "host"}
