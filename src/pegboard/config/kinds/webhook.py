"""Webhook: a tool that calls a service of the operator over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from pegboard.config.build_context import BuildContext
from pegboard.config.config import Declared
from pegboard.config.forms.source_auth_form import SourceAuthForm
from pegboard.config.forms.value_types import Concealed, ConcealedText, FilledText, Form, Maybe, PositiveNumber
from pegboard.config.kinds.described import DescribedForm, declare_described
from pegboard.config.source_auth import Upstream, source_auth
from pegboard.model.tool import ToolEntry, ToolSpec
from pegboard.sources.webhook import Method, WebhookSettings, webhook_entry


class RequestForm(Form):
    """The request to the service, and the part of its response that is the result."""

    url: FilledText = Field(
        description="The service's URL. `{name}` in the path or query is replaced by the value of the argument `name`, "
        "as one segment."
    )
    method: Method = Field("POST", description="The HTTP method. GET and DELETE send arguments as a query string.")
    headers: Mapping[FilledText, ConcealedText] = Field(
        default_factory=dict[str, Any], description="Headers sent with every request, such as credentials."
    )
    timeout: PositiveNumber = Field(30.0, description="The time limit of one call, in seconds.")
    body: Concealed = Field(
        "args",
        description=(
            "`args`: all arguments that are not in the URL. Otherwise a template: a mapping, or JSON text, in which "
            "`{{ name }}` is replaced by an argument."
        ),
    )
    result: Maybe[FilledText] = Field(
        None, description="The path to the result within the answer, such as `$.data.id`."
    )


class WebhookForm(DescribedForm):
    """A tool that calls a service over HTTP."""

    description: Maybe[FilledText] = Field(description="What the tool does and when to use it, for the model.")
    webhook: RequestForm = Field(description="The request to the service.")
    auth: Maybe[SourceAuthForm] = Field(
        None, description="How Pegboard authenticates at the service. Default: only with `webhook: {headers}`."
    )


def declare(tool: Declared[WebhookForm], build: BuildContext) -> None:
    """Add the tool to the catalog, if its request can be built."""
    request = tool.value.webhook
    upstream = Upstream(source=tool.value.name, url=_without_placeholders(request.url), headers=request.headers)
    auth = source_auth(tool.value.auth, tool.at / "auth", build, upstream)
    if auth is None:
        return

    def make(spec: ToolSpec) -> ToolEntry:
        return webhook_entry(
            spec,
            WebhookSettings(
                url=request.url,
                method=request.method,
                headers=auth.headers,
                credentials=auth.credentials,
                timeout_s=request.timeout,
                body=request.body,
                result=request.result,
                bounds=build.config.bounds,
            ),
        )

    declare_described(tool, build, make, section="webhook")


def _without_placeholders(url: str) -> str:
    """Return the URL of a service up to its first placeholder: tokens are for all that is below it."""
    path = url.partition("?")[0]
    return path.partition("{")[0] if "{" in path else path
