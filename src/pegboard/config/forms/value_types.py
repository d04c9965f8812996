"""Value types: the types of single values in a config; each is strict and may come from the environment."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    Strict,
    Tag,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema

from pegboard.config.yaml.environment import Expanded, concealed, typed
from pegboard.core.names import check_namespace, check_tool_name
from pegboard.model.budget import BUDGET_AMOUNT
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSONValue, is_list
from pegboard.model.rate_limit import LimitScope, RateLimit, WhenStoreIsDown
from pegboard.model.secret import Secret

MODEL_RETRIES = 10  # maximum retries of one request to a language model

T = TypeVar("T")
_MODULE = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_REFERENCE = re.compile(rf"python:{_MODULE}:{_MODULE}")
MAPPING, TEXT, FLAG, NUMBER = "as a mapping", "as a text", "as a flag", "as a number"


class Form(BaseModel):
    """A mapping of known keys; unknown keys are refused, and instances are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


# Of a whole file: such keys are removed before the form sees it.
EXTENSIBLE = ConfigDict(
    json_schema_extra={"patternProperties": {"^x-": {"description": "Ignored: a place for YAML anchors."}}}
)


class _Apart:
    """Validates a key with its own form, which is then built only if a config has the key."""

    def __get_pydantic_core_schema__(self, form: type[Form], _handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(form.model_validate, metadata={"form": form})

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        form: type[Form] = schema["metadata"]["form"]
        form.model_rebuild()
        # As a chain, so that the schema refers to it by name, as to other forms.
        return handler(core_schema.chain_schema([form.__pydantic_core_schema__]))


def _present(value: object) -> object:
    if value is None:
        raise PydanticCustomError("null", "expected a value, not nothing; remove the key")
    return value


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, Expanded) else value


def _as_written(value: object) -> object:
    if isinstance(value, Expanded):
        text = "a variable is not expanded here: the environment does not decide which code runs. Write the name itself"
        raise definition_error(text)
    return value


def _as_typed(value: object) -> object:
    return Expanded(value, is_plain=True).typed() if isinstance(value, Expanded) else value


def definition_error(text: str) -> PydanticCustomError:
    """Return the error that a validator raises to report a problem in its own words."""
    return PydanticCustomError("definition", "{text}", {"text": text})


def checked(check: Callable[[str], T]) -> Callable[[str], T]:
    """Return `check` as a validator: its `DefinitionError` becomes a problem at the value's place."""

    def validate(value: str) -> T:
        try:
            return check(value)
        except DefinitionError as error:
            raise definition_error(str(error)) from None

    return validate


def _concealed_text(value: object) -> str | Secret:
    if not isinstance(value, str):
        raise PydanticCustomError("string_type", "Input should be a valid string")
    hidden = concealed(value)
    assert isinstance(hidden, str)
    return hidden


def reference(value: str) -> str:
    """Return a valid reference to a Python object."""
    _as_written(value)
    if not _REFERENCE.fullmatch(value):
        raise PydanticCustomError("reference", "expected `python:module:function`")
    return value


def is_url(text: str) -> bool:
    """Tell whether a text is a URL."""
    return text.startswith(("http://", "https://"))


def _url_or_written(value: object) -> object:
    # The environment may provide addresses of services, but must not choose the code that runs.
    return str(value) if isinstance(value, str) and is_url(value) else _as_written(value)


def _hook_target(value: str) -> str:
    return value if is_url(value) else reference(value)


def module_of_file(name: str) -> str | None:
    """Return the module name of a `.py` file in a config's folder, e.g. `lib.tools` for `./lib/tools.py`."""
    module = name.removeprefix("./").removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    return module if name.endswith(".py") and re.fullmatch(_MODULE, module) else None


def _module(value: str) -> str:
    if not re.fullmatch(_MODULE, value):
        if (module := module_of_file(value)) is not None:
            raise definition_error(f"{value!r} is a file; write the name of its module: `{module}`")
        raise PydanticCustomError("module", "expected the name of a Python module, such as `acme.tools`")
    return value


def _module_glob(value: str) -> str:
    if not re.fullmatch(r"[\w*?]+(?:\.[\w*?]+)*", value):
        raise definition_error("expected the name of a module or a glob over such names: `acme.tools` or `acme.*`")
    return value


def _variable_glob(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_*?]+|file:.+", value):
        raise definition_error(
            "expected the name of a variable or a glob over such names, such as `TOKEN` or `ACME_*`, or `file:` and "
            "files, such as `file:/run/secrets/*`"
        )
    return value


def _as_limit_text(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        checked(RateLimit.parse)(str(value))
    return _as_text(value)


def _limit_text(value: str) -> str:
    checked(RateLimit.parse)(value)
    return value


def _profile_name(value: str) -> str:
    if not re.fullmatch("[A-Za-z0-9_-]{1,64}", value):
        raise PydanticCustomError("profile", "use 1 to 64 of A-Z a-z 0-9 _ -, since it is part of URLs")
    return value


def tag_of(value: object) -> str:
    """Return the alternative of a union that a value belongs to, so that only its faults are reported."""
    value = _as_typed(value) if isinstance(value, Expanded) and value.is_plain else value
    return MAPPING if isinstance(value, dict) else FLAG if isinstance(value, bool) else TEXT


# A mapping that few configs have.
Section: TypeAlias = Annotated[T, _Apart()]
# An optional key that needs a value if it is present: `allow:` followed by nothing would allow everything.
Maybe: TypeAlias = Annotated[T | None, BeforeValidator(_present)]
# The constraints come before the validators that read the environment, so that the editor's schema has them too.
Text: TypeAlias = Annotated[str, Strict(), BeforeValidator(_as_text)]
FilledText: TypeAlias = Annotated[str, Strict(), Field(min_length=1), BeforeValidator(_as_text)]
# Names of code and of readable files and variables, which must be in the file itself.
WrittenText: TypeAlias = Annotated[str, Strict(), Field(min_length=1), BeforeValidator(_as_written)]
Variable: TypeAlias = Annotated[str, Strict(), Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$"), BeforeValidator(_as_text)]
PositiveNumber: TypeAlias = Annotated[float, Strict(), Field(gt=0), BeforeValidator(_as_typed)]
PositiveWhole: TypeAlias = Annotated[int, Strict(), Field(gt=0), BeforeValidator(_as_typed)]
Count: TypeAlias = Annotated[int, Strict(), Field(ge=0), BeforeValidator(_as_typed)]
Flag: TypeAlias = Annotated[bool, Strict(), BeforeValidator(_as_typed)]
# Any JSON. `Concealed` is for values that may contain credentials: headers, environments, keys, tool configs.
Anything: TypeAlias = Annotated[JSONValue, BeforeValidator(typed)]
Concealed: TypeAlias = Annotated[JSONValue, BeforeValidator(concealed)]
ConcealedText: TypeAlias = Annotated[
    str | Secret,
    PlainValidator(_concealed_text),
    WithJsonSchema({"type": "string"}),
]

ToolName: TypeAlias = Annotated[
    Text, AfterValidator(checked(check_tool_name)), Field(json_schema_extra={"pattern": "^[A-Za-z0-9_-]{1,64}$"})
]
ProfileName: TypeAlias = Annotated[Text, AfterValidator(_profile_name)]
Namespace: TypeAlias = Annotated[Text, AfterValidator(checked(check_namespace))]
Reference: TypeAlias = Annotated[
    WrittenText, AfterValidator(reference), Field(json_schema_extra={"pattern": "^python:[\\w.]+:[\\w.]+$"})
]
HookTarget: TypeAlias = Annotated[
    str, Strict(), Field(min_length=1), BeforeValidator(_url_or_written), AfterValidator(_hook_target),
    Field(json_schema_extra={"pattern": "^(python:[\\w.]+:[\\w.]+|https?://.+)$"}),
]  # fmt: skip
ModuleName: TypeAlias = Annotated[WrittenText, AfterValidator(_module)]
ModuleGlob: TypeAlias = Annotated[WrittenText, AfterValidator(_module_glob)]
VariableGlob: TypeAlias = Annotated[WrittenText, AfterValidator(_variable_glob)]


class RetriesForm(Form):
    """Retries of requests to a language model whose endpoint is busy or unreachable."""

    max: Annotated[int, Strict(), Field(ge=0, le=MODEL_RETRIES), BeforeValidator(_as_typed)] = Field(
        2, description="The maximum number of retries; 0 sends each request once."
    )


class RateLimitForm(Form):
    """A maximum number of calls in a number of seconds."""

    max_calls: Count = Field(description="The number of calls per window; 0 refuses every call.")
    window_seconds: PositiveNumber = Field(description="The length of the window, in seconds.")
    scope: LimitScope = Field(
        "caller",
        description="The calls that are counted together, such as all calls of one user. `caller` combines space, "
        "user and agent.",
    )
    when_store_is_down: Maybe[WhenStoreIsDown] = Field(
        None,
        description=(
            "What happens while a shared store does not respond: `closed` refuses calls, `local` counts in this "
            "process (read-only tools only)."
        ),
    )


class CostForm(Form):
    """The cost of one call of a tool."""

    amount: Annotated[float, Strict(), Field(ge=0, le=BUDGET_AMOUNT), BeforeValidator(_as_typed)] = Field(
        description="The amount for each call that runs."
    )
    unit: FilledText = Field("usd", description="The unit, such as usd or credits; budgets with this unit count it.")


Limit: TypeAlias = Annotated[
    Annotated[RateLimitForm, Tag(MAPPING)]
    | Annotated[
        str,
        Strict(),
        AfterValidator(_limit_text),
        BeforeValidator(_as_limit_text),
        Field(json_schema_extra={"pattern": "^[0-9]+/[0-9.]+s$"}),
        Tag(TEXT),
    ],
    Discriminator(lambda value: MAPPING if isinstance(value, dict) else TEXT),
]


def rate_limit(limit: RateLimitForm | str | None) -> RateLimit | None:
    """Return the rate limit of a validated field."""
    if limit is None:
        return None
    return RateLimit.parse(limit if isinstance(limit, str) else limit.model_dump())


def _as_names(value: object) -> object:
    return [value] if isinstance(value, str) else value


def as_names(value: object) -> list[str]:
    """Return the names in a list, or a single text as one name; empty for any other value."""
    listed = _as_names(value)
    return [name for name in listed if isinstance(name, str)] if is_list(listed) else []


Names: TypeAlias = Annotated[
    tuple[FilledText, ...],
    BeforeValidator(_as_names),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
