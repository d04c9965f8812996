"""Model request: asks a model for one answer, and converts its errors."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import (
    AgentRunError,
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelRequestTimeout,
    ModelTimeoutError,
    UserError,
)
from pydantic_ai.messages import ModelRequest
from pydantic_ai.models import Model

from pegboard.model.agent import ModelSpec
from pegboard.model.error import CallError, ErrorKind
from pegboard.models.retries import retried

_KINDS: Mapping[int, ErrorKind] = {401: "upstream_auth", 403: "upstream_auth", 429: "rate_limited"}
_FIRST_OWN_FAULT = 500


async def answered(model: Model, prompt: str, spec: ModelSpec) -> str:
    """Return a model's answer as text; retries count towards the time limit.

    Raises:
        CallError: there was no answer.
    """
    who = f"The language model {model.model_name!r}"
    clock = asyncio.get_running_loop().time
    ends_at = clock() + spec.timeout_s
    try:
        response = await retried(
            lambda: model_request(model, [ModelRequest.user_text_prompt(prompt)]),
            max_retries=spec.max_retries,
            left_s=lambda: ends_at - clock(),
        )
    except CallError:
        raise
    except Exception as error:
        raise model_failure(error, who) from error
    if response.text is None:
        raise CallError("protocol_error", f"{who} answered without text. Check the endpoint.")
    return response.text


def model_failure(error: BaseException, who: str) -> CallError:
    """Return the typed error for an exception of a model's client, without any text of the endpoint.

    Args:
        error: the exception.
        who: the model, as the subject of the message.
    """
    cause: BaseException | None = error
    while cause is not None:
        # Errors of our guards are kept.
        if isinstance(cause, CallError):
            return cause
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, ModelHTTPError):
        return _of_status(error, who)
    if isinstance(error, ModelTimeoutError | ModelRequestTimeout):
        return CallError("timeout", f"{who} did not answer in time.")
    if isinstance(error, ModelConnectionError):
        return CallError("upstream_unavailable", f"{who} cannot be reached.")
    if isinstance(error, ModelAPIError):
        return CallError("upstream_error", f"{who} ended its answer with an error.")
    if isinstance(error, AgentRunError | UserError):
        return CallError("upstream_error", f"{who} gave no usable answer.")
    return CallError("protocol_error", f"{who} answered in an unknown format. Check the endpoint.")


def _of_status(error: ModelHTTPError, who: str) -> CallError:
    default: ErrorKind = "upstream_unavailable" if error.status_code >= _FIRST_OWN_FAULT else "upstream_error"
    kind = _KINDS.get(error.status_code, default)
    text = f"{who} answered with HTTP status {error.status_code}."
    if kind == "upstream_auth":
        return CallError(kind, text, hint="Check its key.")
    return CallError(kind, text, retry_after_s=error.retry_after if kind == "rate_limited" else None)
