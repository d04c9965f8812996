"""Predicate form: the keys of a yes/no question under `predicates:`, and of `available:` of a tool."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, TypeAlias

from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from pegboard.config.forms.value_types import (
    FLAG,
    MAPPING,
    TEXT,
    FilledText,
    Flag,
    Form,
    Maybe,
    Reference,
    Variable,
    tag_of,
)

ONE_KEY = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})


def one_key(form: Form, subject: str) -> None:
    """Refuse a form with no key or with several."""
    if len(form.model_fields_set) != 1:
        known = ", ".join(field.alias or name for name, field in type(form).model_fields.items())
        raise PydanticCustomError(
            "one_key", "{what} has exactly one of the keys {known}", {"what": subject, "known": known}
        )


class PredicateForm(Form):
    """A condition on the context of a call. Give exactly one key."""

    model_config = ONE_KEY

    secret: Maybe[Variable] = Field(
        None,
        description="True if the secret with this name is set and not empty. The secret may come from the environment.",
    )
    context: Maybe[FilledText] = Field(None, description="True if this field of the context is set, such as space_id.")
    setting: Maybe[FilledText] = Field(None, description="True if this entry of `settings:` is on.")
    python: Maybe[Reference] = Field(
        None, description="True if this function returns True: `(ctx) -> bool`, sync or async."
    )
    all: Maybe[tuple[PredicateRef, ...]] = Field(None, description="True if all of these conditions are true.")
    any: Maybe[tuple[PredicateRef, ...]] = Field(None, description="True if at least one of these conditions is true.")
    not_: Maybe[PredicateRef] = Field(None, alias="not", description="True if this condition is false.")

    @model_validator(mode="after")
    def _says_one_thing(self) -> PredicateForm:
        one_key(self, "a predicate")
        return self


PredicateRef: TypeAlias = Annotated[
    Annotated[PredicateForm, Tag(MAPPING)] | Annotated[FilledText, Tag(TEXT)],
    Discriminator(lambda value: MAPPING if isinstance(value, dict) else TEXT),
]


class AvailableForm(Form):
    """A condition that combines others. Give exactly one key."""

    model_config = ONE_KEY

    all: Maybe[tuple[Available, ...]] = Field(None, description="True if all of these conditions are true.")
    any: Maybe[tuple[Available, ...]] = Field(None, description="True if at least one of these conditions is true.")
    not_: Maybe[Available] = Field(None, alias="not", description="True if this condition is false.")
    source: Maybe[FilledText] = Field(None, description="True if the source with this name is up.")

    @model_validator(mode="after")
    def _says_one_thing(self) -> AvailableForm:
        one_key(self, "available")
        return self

    def spelled(self) -> dict[str, object]:
        """Return the form of availability that core reads."""
        parts = {"all": self.all, "any": self.any, "not": self.not_, "source": self.source}
        return {key: availability(part) for key, part in parts.items() if part is not None}


Available: TypeAlias = Annotated[
    Annotated[AvailableForm, Tag(MAPPING)] | Annotated[FilledText, Tag(TEXT)] | Annotated[Flag, Tag(FLAG)],
    Discriminator(tag_of),
]


def availability(form: Any) -> object:
    """Convert a validated `Available` into the form that `core` reads."""
    if isinstance(form, AvailableForm):
        return form.spelled()
    return [availability(part) for part in form] if isinstance(form, tuple) else form  # pyright: ignore[reportUnknownVariableType] - Available


def secret_names(form: PredicateForm | str) -> Iterable[str]:
    """Yield the names of the secrets that a predicate requires."""
    if isinstance(form, str):
        return
    if form.secret is not None:
        yield form.secret
    for part in (*(form.all or ()), *(form.any or ()), *(() if form.not_ is None else (form.not_,))):
        yield from secret_names(part)
