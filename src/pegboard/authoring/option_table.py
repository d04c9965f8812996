"""The table of options: every option of a tool except its parameters, one row per option.

All code about options reads this table. Keywords of decorators and class tools are checked by it and become a
`ToolSpec`; subclasses inherit by it; a built tool is combined with its builder by it. `config/kinds/tool_form.py`
derives the YAML keys from it and docs/generate.py the reference. Type checkers cannot read it, so `options` repeats the
keywords, and a test compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any, Final, Literal, TypeAlias, cast

from msgspec import Struct

from pegboard.core.json_text import json_bytes
from pegboard.core.names import check_namespace, check_tool_name
from pegboard.model.budget import Cost
from pegboard.model.error import DefinitionError
from pegboard.model.rate_limit import RateLimit
from pegboard.model.record import replace
from pegboard.model.tool import ToolSpec

Strings: TypeAlias = str | Sequence[str]
Check: TypeAlias = Callable[[str, Any], str]
Inheritance = Literal["inherited", "merged", "own"]
Joining = Literal["lent", "merged", "smaller", "same", "builder", "built", "declaration"]
YamlForm = Literal[
    "aliases",
    "availability",
    "consent",
    "cost",
    "day",
    "examples",
    "filled text",
    "flag",
    "limit",
    "names",
    "namespace",
    "output check",
    "positive number",
    "schema",
    "task",
    "text",
]


class YamlKey(Struct, frozen=True, kw_only=True):
    """The key of an option in a config.

    `form` is the accepted form, by its name in `config/kinds/tool_form.py`. `key` defaults to the option's name,
    `within` is the surrounding mapping, `wire_key` MCP's spelling. `meaning` replaces the option's text if a config
    means something else. `of_one_tool` keys are invalid for a source, which has many tools.
    """

    form: YamlForm
    key: str = ""
    within: str = ""
    wire_key: str = ""
    meaning: str = ""
    of_one_tool: bool = False


class Option(Struct, frozen=True, kw_only=True):
    """One row of the table.

    `default` is the value if nothing is set; `check` returns the fault of a value. `lands` is the path of the value in
    a `ToolSpec`, in the form that `convert` returns; `()` if the spec has no place for it. `of_code` options extend
    what the code itself declares, its signature or class. They are not copied to the spec unread, and a builder, which
    has no parameters, cannot have them.

    `inheritance` says what a subclass inherits: the value, both values merged as a mapping, or nothing, as for options
    that identify one tool. `built` says how the values of a built tool and of its builder are combined: the built one
    wins ("lent": the builder's is the default), both are merged as a mapping, the smaller limit applies, both must be
    equal, or only one may be set. "declaration" options are checked before anything is built, so a built tool must not
    set them.
    """

    name: str
    meaning: str
    default: Any = None
    check: Check = lambda key, value: ""
    lands: tuple[str, ...] | None = None
    convert: Callable[[Any], Any] | None = None
    of_code: bool = False
    inheritance: Inheritance = "inherited"
    built: Joining = "lent"
    yaml: YamlKey | None = None

    @property
    def path(self) -> tuple[str, ...]:
        """The path of the value in a `ToolSpec`."""
        return (self.name,) if self.lands is None else self.lands

    @property
    def of_builder(self) -> bool:
        """Whether `@catalog.builder` takes it as an option."""
        return not self.of_code and self.name not in ("name", "description")

    @property
    def yaml_key(self) -> str:
        """The key in a config; `""` if it cannot be set there."""
        return "" if self.yaml is None else self.yaml.key or self.name


# ---------------------------------------------------------------- checks of values


def _of_type(types: type | tuple[type, ...], wanted: str) -> Check:
    return lambda key, value: "" if isinstance(value, types) else f"{key}={value!r} must be {wanted}."


def _all_of(*checks: Check) -> Check:
    """Return a check that reports the first fault only: a value that is not text has no characters to check."""
    return lambda key, value: next(filter(None, (check(key, value) for check in checks)), "")


def _one_of(*words: str) -> Check:
    return lambda key, value: "" if value in words else f"{key}={value!r}: say {', '.join(words[:-1])} or {words[-1]}."


def _by_definition(check: Callable[[Any], object], *, label: str = "") -> Check:
    """Return a check for texts and mappings that uses the rules and messages of another part of core."""

    def fault(key: str, value: Any) -> str:
        if isinstance(value, str | Mapping):
            try:
                check(value)
            except DefinitionError as error:
                return f"{label}{error}"
        return ""

    return fault


def _json(key: str, value: Any) -> str:
    try:
        json_bytes(value)
    except (TypeError, ValueError) as error:
        return f"{key}={value!r} is not JSON ({error})."
    return ""


def _positive(*types: type) -> Check:
    def fault(key: str, value: Any) -> str:
        is_number = isinstance(value, types) and not isinstance(value, bool)
        return "" if value is None or (is_number and value > 0) else f"{key}={value!r} must be a number more than 0."

    return fault


def _day(key: str, value: Any) -> str:
    try:
        if value is not None:
            date.fromisoformat(value)
    except ValueError:
        return f"{key}={value!r} is not a date; write for example '2027-01-01'."
    return ""


def _consent(key: str, value: Any) -> str:
    is_known = callable(value) or value in ("never", "always", "destructive")
    return "" if is_known else f"{key}={value!r}: say never, always, destructive, or give a function."


def _ui(key: str, value: Any) -> str:
    return "" if value is None or str(value).startswith("ui://") else f"{key}={value!r} must start with 'ui://'."


def _visibility(key: str, value: Any) -> str:
    return f"{key}={value!r}: only 'model' and 'app' are known." if set(as_names(value)) - {"model", "app"} else ""


_FLAG = _of_type(bool, "true or false")
_MAYBE_FLAG = _of_type((bool, type(None)), "true, false or None")
_TEXT = _of_type(str, "text")
_MAYBE_TEXT = _of_type((str, type(None)), "text")
_MAPPING = _of_type((Mapping, type(None)), "a dict")
_LIST = _of_type((str, list, tuple), "a list")


# ---------------------------------------------------------------- conversions


def as_names(names: Strings) -> tuple[str, ...]:
    """Return names as a tuple; a single string is one name, not letters."""
    return (names,) if isinstance(names, str) else tuple(names)


def as_groups(groups: Strings) -> tuple[str, ...]:
    """Return groups as a tuple; no groups means `core`."""
    return as_names(groups) or ("core",)


def _as_mapping(value: Mapping[str, Any] | None) -> dict[str, Any]:
    return dict(value or {})


def _as_limit(value: str | Mapping[str, Any] | RateLimit | None) -> RateLimit | None:
    return value if value is None or isinstance(value, RateLimit) else RateLimit.parse(value)


def _as_cost(value: Mapping[str, Any] | Cost | None) -> Cost | None:
    return value if value is None or isinstance(value, Cost) else Cost.parse(value)


# ---------------------------------------------------------------- the table


def _hint(name: str, meaning: str, wire_key: str) -> Option:
    return Option(
        name=name,
        meaning=meaning,
        check=_MAYBE_FLAG,
        lands=("annotations", name),
        yaml=YamlKey(form="flag", within="annotations", wire_key=wire_key, of_one_tool=True),
    )


OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        name="name",
        meaning="The tool's name: 1 to 64 of A-Z a-z 0-9 _ -. Default: the name of the function or class.",
        check=_all_of(_MAYBE_TEXT, _by_definition(check_tool_name)),
        inheritance="own",
        built="built",
    ),
    Option(
        name="namespace",
        meaning="The namespace of the tool. Tools in different namespaces may have the same name.",
        default="main",
        check=_all_of(_TEXT, _by_definition(check_namespace)),
        built="builder",
        yaml=YamlKey(form="namespace", of_one_tool=True),
    ),
    Option(
        name="description",
        meaning="What the tool does and when to use it, for the model.",
        check=_MAYBE_TEXT,
        inheritance="own",
        yaml=YamlKey(form="text"),
    ),
    Option(
        name="groups",
        meaning="The tool's groups. Default: `core`.",
        default=(),
        check=_LIST,
        convert=as_groups,
        built="builder",
        yaml=YamlKey(form="names"),
    ),
    Option(
        name="available",
        meaning="When the tool is available: a predicate, true, false, or a combination.",
        built="declaration",
        yaml=YamlKey(form="availability"),
    ),
    Option(
        name="rate_limit",
        meaning="The rate limit, such as 10/60s, or {max_calls, window_seconds}.",
        check=_all_of(
            _of_type((str, Mapping, RateLimit, type(None)), 'like "10/60s", a mapping, or a RateLimit'),
            _by_definition(RateLimit.parse, label="rate_limit: "),
        ),
        convert=_as_limit,
        built="same",
        yaml=YamlKey(form="limit"),
    ),
    Option(
        name="cost",
        meaning="The cost of each call that runs, which budgets count: {amount, unit}.",
        check=_all_of(
            _of_type((Mapping, Cost, type(None)), "a mapping or a Cost"), _by_definition(Cost.parse, label="cost: ")
        ),
        convert=_as_cost,
        built="same",
        yaml=YamlKey(form="cost"),
    ),
    Option(
        name="timeout_s",
        meaning="The time limit of one call, in seconds.",
        check=_positive(int, float),
        built="smaller",
        yaml=YamlKey(form="positive number", key="timeout_seconds"),
    ),
    Option(
        name="max_concurrency",
        meaning="The maximum number of calls that run at the same time.",
        check=_positive(int),
        built="smaller",
    ),
    Option(
        name="max_result_bytes",
        meaning="The maximum size of a result, in bytes.",
        check=_positive(int),
        built="smaller",
    ),
    Option(
        name="output_check",
        meaning="How results with small deviations from their schema are treated: a wrong format, an extra or "
        "write-only member, or the kind of a number. `strict` refuses them (the default for your own "
        "tools). `warn` adds a warning to `meta` (the default for tools of other servers). `relax` does "
        "the same, and lists tools of MCP servers with a schema that accepts such results.",
        check=lambda key, value: "" if value is None else _one_of("strict", "warn", "relax")(key, value),
        yaml=YamlKey(form="output check"),
    ),
    Option(
        name="consent",
        meaning="Whether a person must approve each call: `never`, `destructive` or `always`, or a function of "
        "the arguments that decides.",
        default="never",
        check=_consent,
        built="same",
        yaml=YamlKey(form="consent"),
    ),
    Option(
        name="four_eyes",
        meaning="Two people must approve each call that needs consent, in the inbox. Neither of them may be the "
        "caller. If `consent` is not set, every call needs it.",
        default=False,
        check=_FLAG,
        built="same",
        yaml=YamlKey(form="flag"),
    ),
    Option(
        name="task",
        meaning="Whether a call may (`optional`) or must (`required`) run as a task. The caller then fetches the "
        "result later.",
        default="forbidden",
        check=_one_of("forbidden", "optional", "required"),
        yaml=YamlKey(form="task"),
    ),
    Option(
        name="internal_only",
        meaning="Only host code can call the tool; callers do not see it.",
        default=False,
        check=_FLAG,
        built="declaration",
        yaml=YamlKey(form="flag"),
    ),
    Option(
        name="title",
        meaning="A name for people.",
        check=_MAYBE_TEXT,
        convert=lambda value: value or None,
        yaml=YamlKey(form="text", within="annotations", of_one_tool=True),
    ),
    _hint("read_only", "The tool changes nothing.", "readOnlyHint"),
    _hint("destructive", "The tool may destroy data.", "destructiveHint"),
    _hint("idempotent", "Repeating a call has no further effect.", "idempotentHint"),
    _hint("open_world", "The tool interacts with the outside world, such as the web.", "openWorldHint"),
    Option(
        name="annotations",
        meaning="Further hints, passed to clients unchanged.",
        check=_all_of(_MAPPING, _json),
        lands=("annotations", "extra"),
        convert=_as_mapping,
        inheritance="merged",
        built="merged",
    ),
    Option(
        name="repair",
        meaning="Repair slightly wrong arguments, such as numbers in quotes.",
        default=False,
        check=_FLAG,
        yaml=YamlKey(form="flag"),
    ),
    Option(
        name="aliases",
        meaning="Other accepted names of parameters: `alias: parameter`.",
        check=_MAPPING,
        of_code=True,
        inheritance="own",
        built="built",
        yaml=YamlKey(form="aliases", of_one_tool=True),
    ),
    Option(
        name="additional_properties",
        meaning="Whether further arguments are accepted, or their JSON Schema.",
        default=False,
        check=_of_type((bool, dict), "True, False or a JSON Schema"),
        lands=(),
        of_code=True,
        built="built",
    ),
    Option(
        name="output",
        meaning="The type of the result, or its JSON Schema. Default: the return annotation.",
        lands=("output_schema",),
        of_code=True,
        built="built",
        yaml=YamlKey(form="schema", meaning="The JSON Schema of the result.", of_one_tool=True),
    ),
    Option(
        name="inline",
        meaning="Run a synchronous function in the event loop; only for functions that never wait.",
        default=False,
        check=_FLAG,
        lands=(),
        of_code=True,
        built="built",
    ),
    Option(
        name="examples",
        meaning="Arguments of example calls, or example requests in words; tool search uses both.",
        default=(),
        check=_all_of(_LIST, _json),
        convert=tuple,
        inheritance="own",
        yaml=YamlKey(form="examples", of_one_tool=True),
    ),
    Option(
        name="renamed_from",
        meaning="Former names of the tool; calls and rules that use them still work.",
        default=(),
        check=_LIST,
        convert=as_names,
        inheritance="own",
        yaml=YamlKey(form="names", of_one_tool=True),
    ),
    Option(
        name="deprecated",
        meaning="The first day without the tool, such as 2027-01-01.",
        check=_all_of(_MAYBE_TEXT, _day),
        inheritance="own",
        yaml=YamlKey(form="day", of_one_tool=True),
    ),
    Option(
        name="replaced_by",
        meaning="The tool to use instead.",
        check=_MAYBE_TEXT,
        inheritance="own",
        yaml=YamlKey(form="filled text", of_one_tool=True),
    ),
    Option(
        name="icons",
        meaning="Icons in MCP's form: `[{'src': …}]`.",
        default=(),
        check=_all_of(_LIST, _json),
        convert=tuple,
    ),
    Option(
        name="meta",
        meaning="Data for clients, in MCP's `_meta`.",
        check=_all_of(_MAPPING, _json),
        convert=_as_mapping,
        inheritance="merged",
    ),
    # Both are part of `meta`, which a built tool sets or takes over as a whole.
    Option(
        name="ui",
        meaning="The URI of the tool's user interface, `ui://…`.",
        check=_ui,
        lands=("meta", "ui", "resourceUri"),
        built="built",
    ),
    Option(
        name="ui_visibility",
        meaning="Who sees a tool with a user interface: `model`, `app`, or both. With `app` alone it is only in "
        "`tools/list` of clients that show interfaces, and not in lists, exports and searches for models.",
        default=(),
        check=_all_of(_LIST, _visibility),
        lands=("meta", "ui", "visibility"),
        convert=lambda value: list(as_names(value)),
        built="built",
    ),
    Option(
        name="factory",
        meaning="The name of a context factory that the tool needs; without it the tool is not available.",
        check=_MAYBE_TEXT,
        built="declaration",
    ),
    Option(
        name="full_names",
        meaning="Other names for lists of names, in place of its own. With `[]`, a builder may build any tools.",
        inheritance="own",
        built="declaration",
    ),
)
BY_NAME: Final[Mapping[str, Option]] = {option.name: option for option in OPTIONS}


# ---------------------------------------------------------------- writing to a declaration


def value_at(spec: ToolSpec, path: tuple[str, ...]) -> Any:
    """Return the value at a path: a field of the declaration, of a record in it, or a key of a mapping in it."""
    value: Any = spec
    for key in path:
        value = cast("Mapping[str, Any]", value).get(key) if isinstance(value, Mapping) else getattr(value, key, None)
    return value


def with_options(spec: ToolSpec, values: Mapping[str, Any]) -> ToolSpec:
    """Return the declaration with these checked options set; the rest stays."""
    landing = {
        option.path: values[option.name] if option.convert is None else option.convert(values[option.name])
        for option in OPTIONS
        if option.name in values
    }
    return with_values(spec, landing)


def with_values(spec: ToolSpec, values: Mapping[tuple[str, ...], Any]) -> ToolSpec:
    """Return the declaration with a value at each path; empty values inside mappings are left out."""
    changes: dict[str, Any] = {}
    for path, value in values.items():
        if len(path) == 1:
            changes[path[0]] = value
        elif path:
            changes[path[0]] = _placed(changes.get(path[0], getattr(spec, path[0])), path[1:], value)
    return replace(spec, **changes) if changes else spec


def _placed(inside: Any, path: tuple[str, ...], value: Any) -> Any:
    if not isinstance(inside, Mapping):
        return replace(inside, **{path[0]: value})
    mapping = cast("Mapping[str, Any]", inside)
    if value in (None, [], ()):
        return mapping
    return {**mapping, path[0]: value if len(path) == 1 else _placed(mapping.get(path[0], {}), path[1:], value)}
