"""send_slack: post a message to Slack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

import orjson
from pydantic import Field, field_validator, model_validator

from pegboard.egress.responses import Response, check_status, json_of, text_of
from pegboard.model.call_context import CallContext
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, is_object
from pegboard.model.secret import Secret
from pegboard.model.tool import Annotations, Handler
from pegboard.sources.builtin.kind import BuiltinKind, SecretText, Services, tool_spec
from pegboard.sources.builtin.outbound import HttpUrl, NetworkConfig, http_url, web

SLACK_PLAIN_WORD_CHARS = 8  # characters above which a part of a webhook's URL is treated as a secret and redacted

_WHO = "Slack"
_JSON = {"content-type": "application/json; charset=utf-8"}
_AUTH = frozenset({"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "missing_scope"})


class SlackConfig(NetworkConfig):
    """The connection to Slack: an incoming webhook, which posts to one channel, or a token."""

    webhook_url: SecretText | None = Field(
        None, description="The URL of an incoming webhook, which posts to one channel."
    )
    token: SecretText | None = Field(
        None, description="A bot token, which can post to every channel that the bot has joined."
    )
    base_url: HttpUrl = Field("https://slack.com/api", description="The URL of Slack's API, for use with a token.")
    channel: str | None = Field(None, min_length=1, description="The channel for messages that do not name one.")

    @field_validator("webhook_url")
    @classmethod
    def _is_a_url(cls, webhook_url: Secret | None) -> Secret | None:
        if webhook_url is not None:
            http_url(webhook_url.reveal())
        return webhook_url

    @model_validator(mode="after")
    def _has_one_way(self) -> Self:
        if (self.webhook_url is None) == (self.token is None):
            raise ValueError("set either `webhook_url` or `token`")
        if self.webhook_url is not None and self.channel is not None:
            raise ValueError("a webhook has its own channel; `channel` needs `token`")
        return self

    def secrets(self) -> Iterator[Secret]:
        """Yield the token, and the webhook's URL with the secret parts that Slack may repeat."""
        if self.token is not None:
            yield self.token
        if self.webhook_url is not None:
            yield self.webhook_url
            split = urlsplit(self.webhook_url.reveal())
            parts = [split.path, *split.path.split("/"), *(value for _, value in parse_qsl(split.query))]
            keys = (part for part in parts if len(part) > SLACK_PLAIN_WORD_CHARS)
            yield from (Secret(each) for key in keys for each in {key, unquote(key)})


SPEC = tool_spec(
    "send_slack",
    "Post a message to Slack.",
    arguments={
        "message": {"type": "string", "minLength": 1, "maxLength": 40_000, "description": "The text of the message."},
        "channel": {
            "type": "string",
            "minLength": 1,
            "maxLength": 100,
            "description": "A channel, such as #team or its id. Default: the configured channel.",
        },
    },
    required=("message",),
    result={
        "ok": {"type": "boolean"},
        "channel": {"type": ["string", "null"], "description": "The channel of the message, if Slack names it."},
        "ts": {"type": ["string", "null"], "description": "Slack's id of the message."},
    },
    always=("ok", "channel", "ts"),
    annotations=Annotations(read_only=False, destructive=False, idempotent=False, open_world=True),
    examples=({"message": "The build is green.", "channel": "#team"},),
)


def make(config: SlackConfig, services: Services) -> Handler:
    """Return the handler."""
    token = {"authorization": f"Bearer {config.token.reveal()}"} if config.token else {}
    fixed = config.webhook_url.reveal() if config.webhook_url else None
    if "base_url" in config.model_fields_set:
        fixed = fixed or config.base_url
    out = web(config, services, token, fixed_url=fixed)

    async def send(ctx: CallContext, args: JSON) -> JSON:
        if config.webhook_url is not None:
            if "channel" in args:
                text = "This tool posts to the channel of its webhook and to no other. Leave 'channel' out."
                raise CallError("invalid_arguments", text)
            body = orjson.dumps({"text": args["message"]})
            return _of_webhook(await out.request("POST", config.webhook_url.reveal(), headers=_JSON, body=body))
        channel = args.get("channel", config.channel)
        if channel is None:
            raise CallError("invalid_arguments", "No channel is configured. Name one in 'channel'.")
        body = orjson.dumps({"channel": channel, "text": args["message"]})
        url = f"{config.base_url.rstrip('/')}/chat.postMessage"
        response = await out.request("POST", url, headers=_JSON, body=body)
        check_status(response, _WHO)
        return _of_api(json_of(response, _WHO))

    return send


def _of_webhook(response: Response) -> JSON:
    check_status(response, _WHO)
    text = text_of(response).strip()
    if response.status_code != 200 or text != "ok":
        raise CallError("upstream_error", f"{_WHO} answered {response.status_code}: {text[:100]!r}.")
    return {"ok": True, "channel": None, "ts": None}


def _of_api(answer: Any) -> JSON:
    if not is_object(answer):
        raise CallError("protocol_error", f"{_WHO} answered in an unknown format. Try again later.")
    if answer.get("ok") is not True:
        error = str(answer.get("error"))[:100]
        if error in _AUTH:
            raise CallError("upstream_auth", f"{_WHO} refused our token: {error!r}. The operator must correct it.")
        raise CallError("upstream_error", f"{_WHO} refused the message: {error!r}. Correct it and call again.")
    posted = {name: answer.get(name) for name in ("channel", "ts")}
    return {"ok": True} | {name: None if value is None else str(value) for name, value in posted.items()}


KIND = BuiltinKind(spec=SPEC, config=SlackConfig, make=make, needs_context=False)
