"""Tool class: make a tool of a class whose fields are its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Unpack, dataclass_transform

from pegboard.authoring import class_hooks
from pegboard.authoring.class_fields import ClassFields, read_class
from pegboard.authoring.class_results import Rendered, Rendering
from pegboard.authoring.field import Field
from pegboard.authoring.options import ToolKeywords, ToolOptions
from pegboard.authoring.output_schema import output_reader, output_schema, output_writer
from pegboard.authoring.signature import docstring
from pegboard.core.names import check_tool_name, snake_case
from pegboard.model.call_context import CallContext
from pegboard.model.error import DefinitionError, PegboardError, Problem
from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.model.tool import ToolEntry


@dataclass_transform(kw_only_default=True, field_specifiers=(Field,))
class Tool(Rendering):
    """Base class for tools. Annotations become parameters, and the docstring becomes the description.

    ```python
    class SendEmail(Tool, groups="chat", destructive=True):
        \"\"\"Send an email.\"\"\"
        to: str = Field(description="Address")
        async def perform(self, ctx: ToolContext) -> str: ...
    ```
    `perform` does the work. An attribute whose name starts with an underscore is not a parameter.

    A concrete subclass registers itself on `pegboard.default_catalog`, unless it is declared with `register=False` or
    `abstract=True`. With `replace=True` it replaces the tool that has its name. The other class keywords are those of
    `ToolKeywords`. A subclass inherits them, except name, texts, examples and deprecation; `annotations` and `meta`
    are merged.

    Hooks are methods named `before`, `around`, `after`, `on_error` or `on_complete`. Each declares the arguments it
    needs: `ctx`, `call`, `proceed` (for `around`), `result` (for `after`, `on_error` and `on_complete`). The hooks of
    all base classes run too, around those of the subclass, so do not call `super()`. A before-hook stops the call
    with `report_error`, a `Verdict`, or `False`.
    """

    on_define: ClassVar[list[Callable[[type[Tool], str | None], None]]] = []
    tool_options: ClassVar[ToolOptions]
    tool_fields: ClassVar[ClassFields]
    tool_entry: ClassVar[ToolEntry]
    own_aliases: ClassVar[Mapping[str, str]] = {}
    is_abstract: ClassVar[bool] = True
    is_registered: ClassVar[bool] = False
    is_replacing: ClassVar[bool] = False

    ctx: CallContext
    extra: JSON

    def __init_subclass__(
        cls, *, abstract: bool = False, register: bool = True, replace: bool = False, **keywords: Unpack[ToolKeywords]
    ) -> None:
        super().__init_subclass__()
        where = _standing(cls)
        inherited: ToolOptions = getattr(cls, "tool_options", None) or ToolOptions()
        cls.tool_options = inherited.extended(keywords, where=where)
        aliases = cls.tool_options["aliases"]
        # A value that is not a dict is refused with the other options.
        cls.own_aliases = aliases if isinstance(aliases, dict) else {}
        cls.is_abstract, cls.is_registered, cls.is_replacing = abstract, register and not abstract, replace
        if not abstract:
            additional = cls.tool_options.declared.get("additional_properties")
            cls.tool_fields = read_class(cls, base=Tool, additional=additional, where=where)
            cls.tool_entry = class_entry(cls, where=where)
            cls._announce(None)

    @classmethod
    def _announce(cls, former: str | None) -> None:
        if cls.is_registered or former is not None:
            for tell in Tool.on_define:
                tell(cls, former)

    @classmethod
    def rename(cls, name: str) -> None:
        """Rename the tool in every catalog that holds it; the old name is gone there.

        Raises:
            DefinitionError: the name is invalid or taken; then nothing changes.
        """
        before = cls.tool_options, cls.tool_entry
        if check_tool_name(name) == cls.tool_entry.spec.name:
            return
        cls.tool_options = cls.tool_options.replaced(name=name)
        cls.tool_entry = replace(cls.tool_entry, spec=replace(cls.tool_entry.spec, name=name))
        try:
            cls._announce(before[1].qualified_id)
        except PegboardError:
            cls.tool_options, cls.tool_entry = before
            raise

    def __init__(self, **arguments: Any) -> None:
        """Make an instance by hand, e.g. in a test. Arguments are not validated, but typed fields are converted.

        Raises:
            TypeError: the class is abstract, or an argument is missing or unknown.
        """
        if type(self).is_abstract:
            raise TypeError(f"{type(self).__name__} is abstract; make an instance of a subclass.")
        self.rendered = Rendered()
        type(self).tool_fields.fill(self, type(self).tool_fields.named(arguments))

    def perform(self, *args: Any, **kwargs: Any) -> Any:
        """Do the work and return text, JSON, a model, bytes or content blocks: `perform(self, ctx)`, sync or async.

        The context parameter is optional. Without an annotation, or with `CallContext`, it gets the context of the
        call; with another context type, that of the request.
        """
        raise NotImplementedError(f"{type(self).__name__} has no perform().")

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={getattr(self, name)!r}" for name in type(self).tool_fields.names)
        return f"<{type(self).__name__}({arguments}) {self.rendered}>"


def _standing(cls: type) -> str:
    """Return the location of a class being defined, as `module:line`: the running frame of its module."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__") != cls.__module__:
        frame = frame.f_back
    return cls.__module__ if frame is None else f"{cls.__module__}:{frame.f_lineno}"


def class_entry(cls: type[Tool], *, where: str) -> ToolEntry:
    """Return the tool for a class whose fields were read.

    Raises:
        DefinitionError: invalid keywords, hooks or `perform`.
    """
    options, fields = cls.tool_options, cls.tool_fields
    output = options["output"]
    if cls.perform is Tool.perform:
        message = f"{cls.__name__} has no perform(); write one, or say abstract=True."
        raise DefinitionError(Problem(where=where, message=message))
    spec = replace(
        options.base_spec(name=snake_case(cls.__name__), description=_description(cls), origin=where),
        input_schema=fields.schema,
        aliases=fields.aliases,
        allow_unknown=fields.takes_extra,
        output_schema=None if output is None else output_schema(output, where=where),
    )
    instances = class_hooks.Instances(cls, fields)
    write = None if output is None else output_writer(output)
    return ToolEntry(
        spec=spec,
        handler=class_hooks.perform_handler(cls, instances, write=write, where=where),
        hooks=class_hooks.class_hooks(cls, Tool, instances, where=where),
        runs=class_hooks.runs_of(cls.perform, inline=options["inline"]),
        reread=None if output is None else output_reader(output),
        stray_words=() if fields.takes_extra else _stray_words(cls, {*fields.names, *fields.aliases}),
    )


def _stray_words(cls: type[Tool], names: set[str]) -> tuple[str, ...]:
    # A name that is not a parameter may be another attribute that the docstring describes.
    return tuple(name for name in docstring(cls)[1] if name not in names and not hasattr(cls, name))


def _description(cls: type[Tool]) -> str:
    """Return the class's own docstring, or else the description of the nearest concrete base."""
    if cls.__doc__:
        return docstring(cls)[0]
    bases = (base for base in cls.__mro__[1:] if issubclass(base, Tool) and not base.is_abstract)
    return next((base.tool_entry.spec.description for base in bases), "")
