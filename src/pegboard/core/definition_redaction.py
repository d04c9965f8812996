"""Definition redaction: remove secrets from the definitions that sources list, before anybody sees them.

A server may put the credential that it got into a description, an icon or an address. Prose is redacted like results.
Names, addresses and schema rules have a meaning for the source and cannot be changed, so an item with a secret there is
left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pegboard.core.digests import canonical_json
from pegboard.core.redaction import Redactor
from pegboard.core.relaxed_schema import SCHEMAS_BY_NAME
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.model.record import replace
from pegboard.model.secret import Secret
from pegboard.model.tool import Annotations, OfferedTitles, ToolEntry

_PROSE: Final = frozenset({"description", "title", "$comment"})
# Annotations: they validate nothing, and a sample with a redacted part would be wrong.
_SAMPLES: Final = frozenset({"default", "examples", "example"})


class DefinitionRedactor:
    """Removes secrets from definitions: from entries, and from tools in MCP's wire form."""

    def __init__(self, secrets: Iterable[Secret]) -> None:
        self._redactor = Redactor(secrets)
        self._by_field: Mapping[str, Callable[[Any], Any]] = {
            **dict.fromkeys(("name", "uri", "argument", "prompt", "resource"), self._identifier),
            **dict.fromkeys(("title", "description", "mime_type"), self._redactor.text),
            **dict.fromkeys(("input_schema", "output_schema", "inputSchema", "outputSchema"), self._schema),
            **dict.fromkeys(("meta", "_meta", "examples"), self._value),
            "annotations": self._annotations,
            "icons": self._icons,
            "arguments": self._arguments,
        }

    def entry(self, entry: ToolEntry) -> ToolEntry:
        """Return an entry without secrets; the same object if it has none.

        Raises:
            DefinitionError: a secret is in a place where it cannot be removed.
        """
        if not self._redactor.forms:
            # Most catalogs have no secrets; then nothing is serialised for a search.
            return entry
        offer = entry.offer and self._cleaned(entry.offer)
        spec, exact, offered = entry.spec, entry.exact_output, entry.offered
        if self._has_any([spec.definition(), list(spec.examples)]):
            spec = self._cleaned(spec)
        if exact is not None and self._has_any(exact):
            exact = self._schema(exact)
        if offered is not None and self._has_any(list(offered)):
            offered = OfferedTitles(*(one and self._redactor.text(one) for one in offered))
        if spec is entry.spec and offer == entry.offer and exact is entry.exact_output and offered is entry.offered:
            return entry
        return replace(entry, spec=spec, offer=offer, exact_output=exact, offered=offered, fingerprint="")

    def definition(self, definition: JSON) -> JSON:
        """Return the wire form of one tool without secrets.

        Raises:
            DefinitionError: a secret is in a place where it cannot be removed.
        """
        if not self._has_any(definition):
            return definition
        return {key: self._by_field[key](value) for key, value in definition.items()}

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        return self._redactor.text(text)

    def _has_any(self, value: JSONValue) -> bool:
        return self._redactor.finds(canonical_json(value).decode("utf-8", "surrogatepass"))

    def _cleaned(self, record: Any) -> Any:
        said = {name: value for name in self._by_field if (value := getattr(record, name, None))}
        return replace(record, **{name: self._by_field[name](value) for name, value in said.items()})

    def _identifier(self, text: str) -> str:
        if self._redactor.telling.finds(text):
            raise DefinitionError("its name, its address or its schema contains a secret of this config")
        return text

    def _value(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self._redactor.value, value))  # pyright: ignore[reportUnknownArgumentType] - JSON
        return self._redactor.value(dict(value) if isinstance(value, Mapping) else value)  # pyright: ignore[reportUnknownArgumentType] - JSON

    def _annotations(self, annotations: Annotations | Mapping[str, JSONValue]) -> Any:
        if isinstance(annotations, Annotations):
            return replace(annotations, extra=self._value(annotations.extra))
        return self._value(annotations)

    def _icons(self, icons: Any) -> Any:
        # An icon with a part of its address redacted would not load.
        return type(icons)(icon for icon in icons if not self._has_any(icon))

    def _arguments(self, arguments: Any) -> Any:
        return tuple(
            one._replace(name=self._identifier(one.name), description=self._redactor.text(one.description))
            for one in arguments
        )

    def _schema(self, schema: JSONValue, *, has_names: bool = False) -> Any:
        if is_object(schema):
            kept: JSON = {}
            for key, inner in schema.items():
                if not has_names and key in _SAMPLES and self._has_any(inner):
                    continue
                if not has_names and key in _PROSE:
                    kept[key] = self._redactor.value(inner)
                else:
                    kept[self._identifier(key)] = self._schema(
                        inner, has_names=key in SCHEMAS_BY_NAME and not has_names
                    )
            return kept
        if is_list(schema):
            return [self._schema(inner) for inner in schema]
        return self._identifier(schema) if isinstance(schema, str) else schema
