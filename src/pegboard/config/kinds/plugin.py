"""Plugin: a kind of tools from another package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, cast

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, create_model

from pegboard.config.build_context import BuildContext
from pegboard.config.config import Declared
from pegboard.config.kinds.described import DescribedForm, described_spec
from pegboard.config.kinds.tool_form import check_examples
from pegboard.config.yaml.environment import typed
from pegboard.model.error import CallError, DefinitionError
from pegboard.model.record import replace
from pegboard.model.tool import ToolEntry
from pegboard.sources.plugins import Declaration, PluginKind


def plugin_form(kind: PluginKind) -> type[DescribedForm]:
    """Return the form of a tool of this kind."""
    if kind.settings is None:
        return DescribedForm
    # If no setting is required, the key itself is optional.
    default: Any = ... if _needs_settings(kind.settings) else None
    text = f"The settings of {kind.name}, as {kind.plugin} describes them."
    section: Any = (
        Annotated[cast("Any", kind.settings if default is ... else kind.settings | None), BeforeValidator(typed)],
        Field(default, alias=kind.name, description=text),
    )
    keys: dict[str, Any] = {"settings": section}
    return create_model("PluginForm", __base__=DescribedForm, __doc__=text, **keys)


def _needs_settings(settings: type[BaseModel]) -> bool:
    try:
        settings.model_validate({})
    except ValidationError:
        return True
    return False


def plugin_declare(kind: PluginKind) -> Callable[[Declared[Any], BuildContext], None]:
    """Return the function that adds a tool of this kind to the catalog."""

    def declare(tool: Declared[Any], build: BuildContext) -> None:
        spec = described_spec(tool, build)
        if spec is None:
            return
        settings: Any = None
        if kind.settings is not None:
            declared = getattr(tool.value, "settings", None)
            settings = kind.settings.model_validate({}) if declared is None else declared
        place = tool.at / kind.name if (tool.at / kind.name).exists else tool.at
        declaration = Declaration(
            spec=spec, settings=settings, folder=build.config.path.absolute().parent, bounds=build.config.bounds
        )
        try:
            product: Any = kind.make(declaration)
        except (DefinitionError, CallError) as error:
            build.refused(error, place)
            return
        except Exception as error:  # noqa: BLE001 - boundary: foreign code
            text = " ".join(str(error).split())[:300]
            build.report.add(place.problem(f"{kind.plugin} failed on this tool: {type(error).__name__}: {text}"))
            return
        try:
            _take(product, tool, build)
        except (DefinitionError, CallError) as error:
            build.refused(error, tool.at)
        except TypeError:
            fault = f"{kind.plugin} returned a {type(product).__name__}, which is neither a tool nor a source"
            build.report.add(place.problem(fault))

    return declare


def _take(product: Any, tool: Declared[Any], build: BuildContext) -> None:
    if all(callable(getattr(product, name, None)) for name in ("entries", "state", "start", "stop", "subscribe")):
        build.catalog.add_source(product)
        return
    entries = cast("Sequence[Any]", product) if isinstance(product, list | tuple) else [product]
    if not all(isinstance(entry, ToolEntry) for entry in entries):
        raise TypeError
    for entry in entries:
        build.catalog.registry.add(replace(entry, spec=replace(entry.spec, origin=tool.at.origin)))
        check_examples(entry, tool, build)
