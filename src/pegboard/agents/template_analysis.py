"""Template analysis: checks an operator's template when it is loaded, and lists the names that it reads."""

from __future__ import annotations

from collections.abc import Iterator

from jinja2 import Environment, TemplateSyntaxError, nodes


def template_fault(template: str) -> str | None:
    """Return the fault of a template; `None` if it is valid."""
    try:
        Environment(autoescape=False).parse(template)  # noqa: S701 - it is parsed, and makes no HTML
    except TemplateSyntaxError as error:
        return f"line {error.lineno}: {error.message}"
    except RecursionError:
        return "it is nested too deeply"
    return None


def names_read(template: str) -> tuple[str, ...]:
    """Return the names under `data` that a template reads, `company` for `data.company`, in order."""
    tree = Environment(autoescape=False).parse(template)  # noqa: S701 - as above
    return tuple(dict.fromkeys(_names(tree)))


def _names(tree: nodes.Node) -> Iterator[str]:
    for node in tree.find_all((nodes.Getattr, nodes.Getitem)):
        if isinstance(node.node, nodes.Name) and node.node.name == "data" and (name := _name(node)) is not None:
            yield name


def _name(node: nodes.Getattr | nodes.Getitem) -> str | None:
    if isinstance(node, nodes.Getattr):
        return node.attr
    key = node.arg
    return key.value if isinstance(key, nodes.Const) and isinstance(key.value, str) else None
