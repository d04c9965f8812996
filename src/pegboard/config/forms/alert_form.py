"""Alert form: the states to alert about, and the receivers."""

from __future__ import annotations

from typing import Annotated, TypeAlias, get_args

from pydantic import Discriminator, Field, Tag, model_validator

from pegboard.config.forms.value_types import (
    MAPPING,
    TEXT,
    ConcealedText,
    Form,
    Maybe,
    WrittenText,
    definition_error,
    tag_of,
)
from pegboard.model.alert import AlertKind


class AlertCommandForm(Form):
    """A program that gets each alert as a line of JSON on its standard input."""

    command: tuple[WrittenText, ...] = Field(
        description="The program and its arguments, run in the folder of the config, without a shell."
    )

    @model_validator(mode="after")
    def _is_filled(self) -> AlertCommandForm:
        if not self.command:
            raise definition_error("`command` is empty; write the program and its arguments, such as [./notify]")
        return self


AlertTarget: TypeAlias = Annotated[
    Annotated[AlertCommandForm, Tag(MAPPING)] | Annotated[ConcealedText, Tag(TEXT)], Discriminator(tag_of)
]


class AlertForm(Form):
    """Messages to one receiver: one when something goes wrong, and one when it is over."""

    on: tuple[AlertKind, ...] = Field(description="What to send.")
    to: AlertTarget = Field(description="The https URL of the receiver, or `{command: [...]}`.")
    secret: Maybe[ConcealedText] = Field(
        None,
        description="The secret that signs messages (HMAC-SHA256), such as ${ALERT_SECRET}. Required for a URL.",
    )

    @model_validator(mode="after")
    def _is_signed(self) -> AlertForm:
        if not self.on:
            raise definition_error(f"`on` is empty; write at least one of {', '.join(get_args(AlertKind))}")
        is_command = isinstance(self.to, AlertCommandForm)
        if not is_command and not self.secret:
            raise definition_error(
                "an alert to a URL needs `secret`, such as `secret: ${ALERT_SECRET}`, to sign each message"
            )
        if is_command and self.secret is not None:
            raise definition_error("`secret` signs messages to a URL; a command takes none. Remove it")
        return self
