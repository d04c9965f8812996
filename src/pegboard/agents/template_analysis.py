"""Template analysis: what a template reads, and whether it is one; at load, of templates that operators wrote."""

from __future__ import annotations

from collections.abc import Iterator

from jinja2 import Environment, TemplateSyntaxError, nodes


def template_fault(template: str) -> str | None:
    """Return what is wrong with the text as a template; `None` where it is one."""
    try:
        Environment(autoescape=False).parse(template)  # noqa: S701 - it is parsed, and makes no HTML
    except TemplateSyntaxError as error:
        return f"line {error.lineno}: {error.message}"
    except RecursionError:
        return "it is nested too deeply"
    return None


def names_read(template: str) -> tuple[str, ...]:
    """Return the parts of `data` that a template reads, `company` of `data.company`, in the order of their reading."""
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
