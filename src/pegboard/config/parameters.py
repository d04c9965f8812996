"""Parameters: read `parameters:`, in shorthand or as JSON Schema, and compare them with the function's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema_rs

from pegboard.config.yaml.tree import At, Scalar, Step
from pegboard.core.names import nearest_one
from pegboard.model.error import Problem
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object

# The vocabulary of JSON Schema 2020-12. In the shorthand, any other key is a typo: `requierd: true`.
_KEYWORDS = frozenset(
    "$anchor $comment $defs $dynamicAnchor $dynamicRef $id $ref $schema $vocabulary additionalProperties allOf anyOf "
    "const contains contentEncoding contentMediaType contentSchema default dependentRequired dependentSchemas "
    "deprecated description else enum examples exclusiveMaximum exclusiveMinimum format if items maxContains maxItems "
    "maxLength maxProperties maximum minContains minItems minLength minProperties minimum multipleOf not oneOf pattern "
    "patternProperties prefixItems properties propertyNames readOnly required then title type unevaluatedItems "
    "unevaluatedProperties uniqueItems writeOnly".split()
)
# Keywords that may allow more properties than those listed.
_COMPOSED = frozenset({"allOf", "anyOf", "oneOf", "$ref", "if", "dependentSchemas", "patternProperties"})


def is_schema(declared: Mapping[str, Any]) -> bool:
    """Tell whether `parameters:` is a full JSON Schema: then its `type` is the text `object`."""
    return isinstance(declared.get("type"), str)


_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
_PYTHON_TYPES = {
    "str": "string", "text": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array",
    "tuple": "array", "set": "array", "dict": "object", "None": "null", "none": "null",
}  # fmt: skip


def read_parameters(declared: Mapping[str, Any], at: At) -> tuple[JSON, list[Problem]]:
    """Return the JSON Schema of `parameters:`, and its problems.

    In the shorthand each key is a parameter, which may have `required: true`.
    """
    problems: list[Problem] = []
    if is_schema(declared):
        schema = dict(declared)
        if schema["type"] != "object":
            problems.append(
                (at / "type").problem("a schema of parameters has `type: object`: arguments are given by name")
            )
    else:
        schema = _from_shorthand(declared, at, problems)
    problems += problems or _schema_problems(schema, at, is_shorthand=not is_schema(declared))
    return schema, problems


def read_schema(declared: Mapping[str, Any], at: At) -> tuple[JSON, list[Problem]]:
    """Return a full JSON Schema, and its problems."""
    return dict(declared), _schema_problems(dict(declared), at, is_shorthand=False)


def _from_shorthand(declared: Mapping[str, Any], at: At, problems: list[Problem]) -> JSON:
    properties: JSON = {}
    required: list[str] = []
    for name, inner in declared.items():
        here = at / name
        if not is_object(inner):
            problems.append(
                here.problem(
                    f"expected a mapping, such as {{type: string, required: true}}, not {here.shown}; "
                    "a whole JSON Schema starts with `type: object`"
                )
            )
            continue
        properties[name] = _property(inner, here, problems)
        if inner.get("required") is True:
            required.append(name)
    schema: JSON = {"type": "object", "properties": properties}
    return {**schema, "required": required} if required else schema


def _property(declared: Mapping[str, Any], at: At, problems: list[Problem]) -> JSON:
    """Return one property without the shorthand's `required`; properties of a nested object may use the shorthand."""
    for key in declared:
        if key not in _KEYWORDS and not key.startswith("x-"):
            near = nearest_one(key, _KEYWORDS)
            hint = f" Did you mean {near!r}?" if near else " Your own keys start with 'x-'."
            problems.append((at / key).problem(f"unknown key {key!r} of a parameter.{hint}", at_key=True))
    required: JSONValue = declared.get("required")
    if not (required is None or isinstance(required, bool) or is_list(required)):
        problems.append((at / "required").problem(f"expected true or false, not {(at / 'required').shown}"))
    schema = {key: value for key, value in declared.items() if key != "required" or is_list(value)}
    inner = declared.get("properties")
    if is_object(inner) and not is_list(required):
        nested = _from_shorthand(inner, at / "properties", problems)
        schema["properties"] = nested["properties"]
        if "required" in nested:
            schema["required"] = nested["required"]
    return schema


def _schema_problems(schema: JSON, at: At, *, is_shorthand: bool) -> list[Problem]:
    """Validate a schema against the meta-schema, and report the place of each fault in the file."""
    try:
        jsonschema_rs.meta.validate(schema)
    except jsonschema_rs.ValidationError as error:
        steps: tuple[Step, ...] = tuple(error.instance_path)
        if is_shorthand and steps[:1] == ("properties",):
            steps = steps[1:]
        here = at.under(steps)
        if steps[-1:] == ("type",) and isinstance(here.node, Scalar):
            suggestion = _PYTHON_TYPES.get(here.text) or nearest_one(here.text, _TYPES)
            hint = f" Did you mean {suggestion!r}?" if suggestion else ""
            return [here.problem(f"{here.shown} is not a type; the types are {', '.join(_TYPES)}.{hint}")]
        return [here.problem(f"{here.shown} is not valid JSON Schema here: {str(error.message).splitlines()[0][:200]}")]
    except ValueError as error:
        return [at.problem(f"no valid JSON Schema: {str(error).splitlines()[0][:200]}")]
    return []


# ---------------------------------------------------------------- the function behind


def misfits(schema: JSON, accepted: JSON, *, takes_extra: bool, at: At) -> Iterator[Problem]:
    """Yield parameters that the function does not accept, and required ones of the function that are not declared.

    Args:
        schema: the declared parameters.
        accepted: the schema of the function's signature.
        takes_extra: the function accepts arguments of any name.
        at: the place of the declaration.
    """
    declared: Mapping[str, Any] = schema.get("properties", {})
    parameters: Mapping[str, Any] = accepted.get("properties", {})
    place = at / "properties" if (at / "properties").exists and (at / "type").exists and is_schema(schema) else at
    for name, inner in declared.items():
        here = place / name if (place / name).exists else at
        if name not in parameters:
            if not takes_extra:
                near = nearest_one(name, parameters)
                hint = f" Did you mean {near!r}?" if near else f" It takes: {', '.join(parameters) or 'nothing'}."
                yield here.problem(f"the handler has no parameter {name!r}.{hint}", at_key=True)
        elif not _fits(inner, parameters[name]):
            yield here.problem(f"the handler takes {_type(parameters[name])} as {name!r}, not {_type(inner)}")
    if not takes_extra and (schema.get("additionalProperties", False) is not False or "patternProperties" in schema):
        yield at.problem("the schema lets any argument in, but the handler takes only its own; give it **arguments")
    if not _COMPOSED & set(schema):
        supplied = {
            *schema.get("required", ()),
            *(name for name, inner in declared.items() if is_object(inner) and "default" in inner),
        }
        for name in accepted.get("required", ()):
            if name not in supplied:
                fault = "neither required here nor optional with a default" if name in declared else "not declared here"
                yield (place / name).problem(f"the handler needs {name!r}, which is {fault}")


def _fits(declared: Any, accepted: Any) -> bool:
    """Tell whether each value of the declared type is valid for the function, as far as both name their types."""
    given_types, taken_types = _types(declared), _types(accepted)
    if not given_types or not taken_types:
        return True
    return given_types <= taken_types | ({"integer"} if "number" in taken_types else set[str]())


def _types(schema: Any) -> set[str]:
    types = schema.get("type") if is_object(schema) else None
    return {types} if isinstance(types, str) else set(map(str, types)) if is_list(types) else set()


def _type(schema: Any) -> str:
    return " or ".join(sorted(_types(schema)))
