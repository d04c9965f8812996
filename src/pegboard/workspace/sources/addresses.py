"""Addresses: the document source behind `git:URL`, `s3://BUCKET/PREFIX` or `sitemap:URL`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pegboard.egress.destinations import Destinations
from pegboard.model.error import DefinitionError
from pegboard.model.record import CarriesCredentials
from pegboard.model.secret import Secret
from pegboard.workspace.sources.bucket_source import BUCKET_PREFIX, BucketPlace, BucketSource
from pegboard.workspace.sources.document_source import DocumentSource
from pegboard.workspace.sources.git_source import GIT_PREFIX, GitAccess, GitPlace, GitSource
from pegboard.workspace.sources.s3_signature import S3Keys
from pegboard.workspace.sources.sitemap_source import SITEMAP_PREFIX, SitemapSource
from pegboard.workspace.sources.web_paths import is_address


class SourceAccess(CarriesCredentials, frozen=True, kw_only=True):
    """The access to places: the allowed hosts, and credentials.

    `s3_endpoint` is the address of an S3-compatible service; empty for AWS. Without `s3_keys` a bucket is public.
    """

    destinations: Destinations
    git_token: Secret | None = None
    s3_keys: S3Keys | None = None
    s3_endpoint: str = ""

    @classmethod
    def of_environment(cls, destinations: Destinations, env: Mapping[str, str]) -> SourceAccess:
        """Return the access by the variables that the tools of Git hosts and S3 services use."""
        access_key, secret_key, token = (
            env.get(name, "") for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        )
        keys = None
        if access_key and secret_key:
            region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1"
            keys = S3Keys(
                access_key=access_key,
                secret_key=Secret(secret_key),
                session_token=Secret(token) if token else None,
                region=region,
            )
        git_token = env.get("GIT_TOKEN")
        return cls(
            destinations=destinations,
            git_token=Secret(git_token) if git_token else None,
            s3_keys=keys,
            s3_endpoint=env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or "",
        )


def source_at(address: str, access: SourceAccess, *, beside: Path) -> DocumentSource | None:
    """Return the source behind an address; `None` for a path, or a page or feed of the web.

    Raises:
        DefinitionError: the address is not valid.
    """
    make = next((make for prefix, make in _SOURCES.items() if address.startswith(prefix)), None)
    return None if make is None else make(address, access, beside)


def name_of(address: str) -> str:
    """Return the name of a source that has none: that of the repository, bucket, site or folder.

    Raises:
        DefinitionError: the address is not valid.
    """
    name = next((name for prefix, name in _NAMES.items() if address.startswith(prefix)), None)
    if name is not None:
        return name(address)
    return address if is_address(address) else Path(address).absolute().name or "root"


def _git(address: str, access: SourceAccess, beside: Path) -> DocumentSource:
    return GitSource(
        GitPlace.parse(address), GitAccess(destinations=access.destinations, token=access.git_token), beside=beside
    )


def _bucket(address: str, access: SourceAccess, _: Path) -> DocumentSource:
    return BucketSource(BucketPlace.parse(address, endpoint=access.s3_endpoint), access.s3_keys, access.destinations)


def _sitemap(address: str, access: SourceAccess, _: Path) -> DocumentSource:
    return SitemapSource(_site(address), access.destinations)


def _site(address: str) -> str:
    url = address.removeprefix(SITEMAP_PREFIX)
    if not is_address(url) or not urlsplit(url).hostname:
        raise DefinitionError(f"{address[:200]!r} is not a site map. Write sitemap:https://HOST/sitemap.xml.")
    return url


_SOURCES: Final[Mapping[str, Callable[[str, SourceAccess, Path], DocumentSource]]] = {
    GIT_PREFIX: _git,
    BUCKET_PREFIX: _bucket,
    SITEMAP_PREFIX: _sitemap,
}
_NAMES: Final[Mapping[str, Callable[[str], str]]] = {
    GIT_PREFIX: lambda address: GitPlace.parse(address).name(),
    BUCKET_PREFIX: lambda address: BucketPlace.parse(address).bucket,
    SITEMAP_PREFIX: lambda address: urlsplit(_site(address)).hostname or "site",
}
