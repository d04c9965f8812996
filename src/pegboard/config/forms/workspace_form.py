"""Workspace form: the store of documents, their sources and their tools."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from pegboard.config.forms.embedder_form import EmbedderForm
from pegboard.config.forms.value_types import (
    FLAG,
    MAPPING,
    TEXT,
    ConcealedText,
    FilledText,
    Form,
    Maybe,
    PositiveNumber,
    PositiveWhole,
    Reference,
    definition_error,
)


class WebFetchForm(Form):
    """The pages of the web that may be fetched."""

    allow_hosts: tuple[FilledText, ...] = Field(
        (), description="The allowed hosts: `example.com`, `*.example.com`, `10.0.0.0/8`. Default: every public host."
    )
    allow_private: bool = Field(False, description="Whether private and loopback addresses may be reached.")
    timeout_seconds: PositiveNumber = Field(
        30.0, description="The time limit of one page, including redirects, in seconds."
    )


class GitForm(Form):
    """A Git repository. It is read with the program `git`."""

    url: FilledText = Field(description="https://HOST/PATH, ssh://HOST/PATH, or a folder relative to this file.")
    branch: Maybe[FilledText] = Field(None, description="The branch or tag. Default: the repository's default branch.")
    folder: Maybe[FilledText] = Field(None, description="The folder to read. Default: the whole repository.")
    token: Maybe[ConcealedText] = Field(None, description="The access token for https, such as ${GIT_TOKEN}.")


class BucketForm(Form):
    """A bucket of an S3-compatible service."""

    name: FilledText = Field(description="The name of the bucket.")
    prefix: Maybe[FilledText] = Field(
        None, description="Only objects whose names begin with this text. Default: all objects."
    )
    endpoint: Maybe[FilledText] = Field(None, description="The URL of the service. Default: that of AWS.")
    region: FilledText = Field("us-east-1", description="The region that requests are signed for.")
    access_key: Maybe[ConcealedText] = Field(
        None, description="The access key, such as ${AWS_ACCESS_KEY_ID}. Without keys the bucket has to be public."
    )
    secret_key: Maybe[ConcealedText] = Field(None, description="The secret key, such as ${AWS_SECRET_ACCESS_KEY}.")

    @model_validator(mode="after")
    def _has_both_keys(self) -> BucketForm:
        if (self.access_key is None) != (self.secret_key is None):
            raise definition_error("`access_key` and `secret_key` belong together; write both, or none")
        return self


PLACES = ("path", "git", "bucket", "sitemap")


class LiveSourceForm(Form):
    """Documents that a running server keeps up to date. Give exactly one of `path`, `git`, `bucket`, `sitemap`."""

    path: Maybe[FilledText] = Field(None, description="A folder, relative to this file.")
    git: Maybe[GitForm] = Field(None, description="A Git repository.")
    bucket: Maybe[BucketForm] = Field(None, description="A bucket of an S3-compatible service.")
    sitemap: Maybe[FilledText] = Field(
        None, description="The URL of a web site, or of its site map. Pages of the same host are read."
    )
    space: FilledText = Field(description="The space of the documents, such as a team or a customer.")
    name: Maybe[FilledText] = Field(
        None, description="The name of the source in that space. Default: the folder's name, or the address."
    )
    watch: bool = Field(True, description="Whether a change in the folder is read at once. Needs the extra `watch`.")
    every_seconds: PositiveNumber = Field(
        600.0, description="The time between two checks of the whole source, in seconds."
    )
    metadata: dict[FilledText, FilledText] = Field(
        default_factory=dict[str, str],
        description="Keys and values that every document gets, such as `team: support`, to filter searches.",
    )
    encoding: Maybe[FilledText] = Field(
        None, description="The encoding of texts that are not UTF-8, such as cp1252. Default: it is detected."
    )

    @model_validator(mode="after")
    def _has_place(self) -> LiveSourceForm:
        given = [name for name in PLACES if getattr(self, name) is not None]
        if len(given) != 1:
            raise definition_error("a source has one of `path`, `git`, `bucket` and `sitemap`")
        return self


class ParserForm(Form):
    """A function that reads files, with its limits."""

    handler: Reference = Field(description="The function, as `python:module:function`.")
    timeout_seconds: PositiveNumber = Field(30.0, description="The time limit of one file, in seconds.")
    memory_mib: PositiveWhole = Field(512, description="Memory limit of the process, in MiB.")


class RerankerForm(Form):
    """A function that orders the passages of a search, with its limits."""

    handler: Reference = Field(description="The function, as `python:module:function`.")
    passages: Annotated[int, Field(ge=1, le=200)] = Field(
        50, description="The number of passages that the function gets: the best ones of the search."
    )
    timeout_seconds: PositiveNumber = Field(
        2.0,
        description="The time limit for one search, in seconds. After that, the order of the search stays as it was.",
    )


ParserOrReference = Annotated[
    Annotated[ParserForm, Tag(MAPPING)] | Annotated[Reference, Tag(TEXT)],
    Discriminator(lambda value: MAPPING if isinstance(value, dict) else TEXT),
]
RerankerOrReference = Annotated[
    Annotated[RerankerForm, Tag(MAPPING)] | Annotated[Reference, Tag(TEXT)],
    Discriminator(lambda value: MAPPING if isinstance(value, dict) else TEXT),
]


class WorkspaceForm(Form):
    """The documents of all spaces, and the tools that agents use to browse, search and read them."""

    store: ConcealedText = Field(
        "sqlite:./documents.db",
        description=(
            "Where documents are stored: sqlite:FILE, relative to this file, or postgresql://HOST/DATABASE, "
            "which several machines can share. PostgreSQL needs the extension `vector`."
        ),
    )
    space: Maybe[FilledText] = Field(
        None,
        description=(
            "The space of callers without an identity: callers of a server without `identity:`, and commands "
            "without `--as`. Without this key, they see no documents."
        ),
    )
    embedder: Annotated[
        Annotated[EmbedderForm, Tag(MAPPING)] | Annotated[Literal["none", "hashing"], Tag(TEXT)],
        Discriminator(lambda value: MAPPING if isinstance(value, dict) else TEXT),
    ] = Field(
        "none",
        description=(
            "The embedder for search by meaning, in addition to search by words: `none`; `hashing`, which "
            "needs no model "
            "and finds misspelled words; or a mapping with `type`, as under `discovery:`."
        ),
    )
    sources: tuple[LiveSourceForm, ...] = Field((), description="Documents that a running server keeps up to date.")
    parsers: dict[FilledText, ParserOrReference] = Field(
        default_factory=dict[str, "ParserForm | str"],
        description=(
            "Functions of yours that read files, by file ending or media type, such as "
            "`.dwg: python:drawings:read_drawing`. They come before Pegboard's own parsers."
        ),
    )
    ocr: Maybe[ParserOrReference] = Field(
        None,
        description=(
            "A function that recognizes the text in a picture, `(picture, media_type) -> text`, for pictures and for "
            "pages of a PDF without text."
        ),
    )
    reranker: Maybe[RerankerOrReference] = Field(
        None,
        description=(
            "A function that scores the passages of a search again, `(query, passages) -> scores`; the highest score "
            "comes first."
        ),
    )
    model: Maybe[FilledText] = Field(
        None,
        description=(
            "The entry of `models:` for tools that need a model (`analyze_document`, questions to `query_documents`). "
            "Default: `default`."
        ),
    )
    web_fetch: Maybe[
        Annotated[
            Annotated[WebFetchForm, Tag(MAPPING)] | Annotated[bool, Tag(FLAG)],
            Discriminator(lambda value: MAPPING if isinstance(value, dict) else FLAG),
        ]
    ] = Field(
        None,
        description=(
            "Whether agents may fetch web pages (`fetch_web_page`); a mapping limits the hosts. Default: "
            "true if the built-in `web_search` is one of the tools; `web_search` is then also in the "
            "group `web`."
        ),
    )
