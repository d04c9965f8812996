"""Insertion: add items and groups to a config, and keep every other character of the file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from pegboard.config.yaml.parser import parse, scalar_value
from pegboard.config.yaml.tree import Items, Table, plain_value
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object

_PLAIN = re.compile(r"-{0,2}[A-Za-z_./][A-Za-z0-9_./@+-]*(?: [A-Za-z0-9_./@+-]+)*")
# YAML 1.1 readers take these words for yes and no.
_WORDS_OF_YAML_1_1 = frozenset({"y", "n", "yes", "no", "on", "off"})
_COMMENT = re.compile(r"( *)#")
_BREAK = "\n"
_INDENT = 2


def with_items(text: str, section: str, items: Sequence[JSONValue]) -> str:
    """Return the text of a config with these items at the end of a top-level list, which is created if it is missing.

    The result has been parsed again to check that it means what is intended.

    Raises:
        DefinitionError: the text is not YAML, or its style does not allow an insertion without other changes.
    """
    mark, body = ("\ufeff", text[1:]) if text.startswith("\ufeff") else ("", text)
    before = _read(body)
    if before is not None and not is_object(before):
        raise DefinitionError("the config is not a mapping; nothing was changed")
    present = (before or {}).get(section)
    if present is not None and not is_list(present):
        raise DefinitionError(f"`{section}:` of the config is not a list; nothing was changed")
    wanted = {**(before or {}), section: [*(present or []), *items]}
    if (changed := _with_meaning(_candidates(body, section, items), wanted)) is not None:
        return mark + changed
    raise DefinitionError(
        f"the config is written in a way in which nothing can be added to `{section}:` without touching the rest; "
        "add what `--print` shows by hand"
    )


def item_count(text: str, section: str) -> int:
    """Return the number of items in a top-level list of a config; 0 if the list is missing."""
    root, _ = parse(text, file="config")
    node = root.items.get(section) if isinstance(root, Table) else None
    return len(node.items) if isinstance(node, Items) else 0


def with_included(text: str, profile: str, groups: Sequence[str]) -> str:
    """Return the text of a config with these groups at the end of the `include:` of a profile.

    Raises:
        DefinitionError: the config has no such profile, or its `include:` cannot be changed without touching the rest.
    """
    mark, body = ("\ufeff", text[1:]) if text.startswith("\ufeff") else ("", text)
    before = _read(body)
    profiles = before.get("profiles") if is_object(before) else None
    if not is_object(before) or not is_object(profiles) or profile not in profiles:
        known = ", ".join(profiles) if is_object(profiles) else "none"
        raise DefinitionError(f"the config has no profile {profile!r}. Profiles: {known}")
    form = profiles[profile]
    included = form.get("include") if is_object(form) else None
    if is_object(form) and is_list(included) and included:
        new = [group for group in groups if group not in included]
        if not new:
            return text
        wanted = {**before, "profiles": {**profiles, profile: {**form, "include": [*included, *new]}}}
        candidates = _with_more(body, _at(body, "profiles", profile, "include"), new)
        if (changed := _with_meaning(candidates, wanted)) is not None:
            return mark + changed
    raise DefinitionError(
        f"`include:` of the profile {profile!r} cannot be changed without touching the rest; "
        f"add {', '.join(map(repr, groups))} there by hand"
    )


def with_groups(text: str, groups: Mapping[str, str]) -> str:
    """Return the text of a config with these groups and their descriptions at the end of its `groups:`.

    Raises:
        DefinitionError: the text is not YAML, or its `groups:` cannot be changed without touching the rest.
    """
    mark, body = ("\ufeff", text[1:]) if text.startswith("\ufeff") else ("", text)
    before = _read(body)
    present = before.get("groups") if is_object(before) else None
    if is_object(before) and (present is None or is_object(present)):
        wanted = {**before, "groups": {**(present or {}), **groups}}
        if (changed := _with_meaning(_with_pairs(body, groups), wanted)) is not None:
            return mark + changed
    raise DefinitionError(
        f"`groups:` cannot be changed without touching the rest; declare {', '.join(map(repr, groups))} there by hand"
    )


def _with_meaning(candidates: Iterable[str], wanted: JSONValue) -> str | None:
    """Return the first candidate text with the intended meaning."""
    for candidate in candidates:
        try:
            if _read(candidate) == wanted:
                return candidate
        except DefinitionError:
            continue
    return None


def _with_pairs(text: str, groups: Mapping[str, str]) -> Iterator[str]:
    """Yield candidate texts with more pairs at the end of `groups:`."""
    newline = "\r\n" if "\r\n" in text else "\n"
    root = _composed(text)
    written = json.dumps(groups)
    pairs = [] if root is None else [pair for pair in root.value if pair[0].value == "groups"]
    node: Any = pairs[0][1] if pairs else None
    if node is None and root is not None and root.flow_style:
        yield from _inside(text, root, f'"groups": {written}')
    elif node is None:
        gap = "" if not text or text.endswith("\n") else newline
        yield text + gap + mapping_text({"groups": dict(groups)}).replace("\n", newline)
    elif node.id == "mapping" and node.flow_style:
        yield from _inside(text, node, written[1:-1])
    elif node.id == "mapping":
        lines = text.splitlines(keepends=True)
        line = _last_line(node)
        head, tail = "".join(lines[:line]), "".join(lines[line:])
        gap = "" if not head or head.endswith("\n") else newline
        indent = " " * node.start_mark.column
        block = "".join(f"{indent}{each}{newline}" for each in mapping_text(dict(groups)).splitlines())
        yield head + gap + block + tail


def _at(text: str, *keys: str) -> Any:
    """Return the node below these keys, which must exist."""
    node = _composed(text)
    for key in keys:
        node = next((value for name, value in node.value if name.value == key), node)
    return node


def _with_more(text: str, node: Any, items: Sequence[str]) -> Iterator[str]:
    """Yield candidate texts with more items at the end of a list that is not empty."""
    if node.id != "sequence":
        return
    if node.flow_style:
        yield from _inside(text, node, ", ".join(map(_scalar, items)))
        return
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = text.splitlines(keepends=True)
    line = _last_line(node)
    head, tail = "".join(lines[:line]), "".join(lines[line:])
    gap = "" if not head or head.endswith("\n") else newline
    yield head + gap + block_text(items, indent=node.start_mark.column).replace("\n", newline) + tail


def block_text(items: Sequence[JSONValue], *, indent: int = _INDENT) -> str:
    """Return items of a list as YAML lines, each with its dash."""
    return "".join(f"{line}\n" for item in items for line in _item_lines(item, " " * indent))


def mapping_text(value: JSON) -> str:
    """Return a whole document as YAML lines."""
    return "".join(f"{line}\n" for line in _mapping_lines(value, ""))


def _read(text: str) -> JSONValue:
    root, problems = parse(text, file="config")
    if problems:
        raise DefinitionError(problems)
    return None if root is None else plain_value(root)


# ---- places


def _candidates(text: str, section: str, items: Sequence[JSONValue]) -> Iterator[str]:
    """Yield candidate texts, the most natural style first."""
    newline = "\r\n" if "\r\n" in text else "\n"
    root = _composed(text)
    pairs = [] if root is None else [pair for pair in root.value if pair[0].value == section]
    key: Any
    node: Any
    key, node = pairs[0] if pairs else (None, None)
    written = json.dumps(list(items))[1:-1]
    if root is not None and root.flow_style and node is None:
        yield from _inside(text, root, f'"{section}": [{written}]')
    elif node is None:
        gap = "" if not text or text.endswith("\n") else newline
        yield text + gap + f"{section}:\n{block_text(items)}".replace("\n", newline)
    elif node.id == "sequence" and node.flow_style and (node.value or (root is not None and root.flow_style)):
        yield from _inside(text, node, written)
    else:
        is_empty = not node.value
        if node.id == "sequence" and is_empty:
            text = text[: node.start_mark.index].rstrip(" ") + text[node.end_mark.index :]
        lines = text.splitlines(keepends=True)
        line = key.end_mark.line + 1 if is_empty else _after_last_item(lines, node)
        head, tail = "".join(lines[:line]), "".join(lines[line:])
        gap = "" if not head or head.endswith("\n") else newline
        block = block_text(items, indent=_INDENT if is_empty else node.start_mark.column)
        yield head + gap + block.replace("\n", newline) + tail


def _composed(text: str) -> Any:
    """Return the nodes of a valid YAML text; `None` if it is empty."""
    untyped: Any = yaml
    return untyped.compose(text, Loader=untyped.SafeLoader)


def _inside(text: str, node: Any, written: str) -> Iterator[str]:
    """Yield candidate texts with more items at the end of a list or mapping in brackets."""
    end = node.end_mark.index - 1
    for comma in (", ", "") if node.value else ("",):
        yield f"{text[:end].rstrip()}{comma}{written}{text[end:]}"
        yield f"{text[:end]}{comma}{written}{text[end:]}"


def _after_last_item(lines: Sequence[str], node: Any) -> int:
    """Return the line after the last item of a list, and after the comments that are indented as part of it."""
    end = node.end_mark.line + (1 if node.end_mark.column else 0)
    used = [number for number in range(end) if lines[number].strip() and not _COMMENT.match(lines[number])]
    after = max([_last_line(node), *(number + 1 for number in used[-1:])])
    for number in range(after, min(end, len(lines))):
        comment = _COMMENT.match(lines[number])
        if comment is not None and len(comment[1]) > node.start_mark.column:
            after = number + 1
    return after


def _last_line(node: Any) -> int:
    """Return the line after the last text below a node, ignoring comments; a block text may look like one."""
    if node.id == "scalar":
        return node.end_mark.line + (0 if node.style in ("|", ">") and node.end_mark.column == 0 else 1)
    inner: list[Any] = list(node.value[-1]) if node.value and node.id == "mapping" else list(node.value[-1:])
    return max(map(_last_line, inner), default=0)


# ---- styles


def _item_lines(item: JSONValue, indent: str) -> Iterator[str]:
    if not is_object(item) or not item:
        yield f"{indent}- {_flow(item)}"
        return
    for number, line in enumerate(_mapping_lines(item, "")):
        yield f"{indent}{'  ' if number else '- '}{line}"


def _mapping_lines(value: JSON, indent: str) -> Iterator[str]:
    for key, inner in value.items():
        if is_object(inner) and inner:
            yield f"{indent}{_scalar(key)}:"
            yield from _mapping_lines(inner, f"{indent}  ")
        elif is_list(inner) and any(is_object(item) for item in inner):
            yield f"{indent}{_scalar(key)}:"
            for item in inner:
                yield from _item_lines(item, f"{indent}  ")
        elif isinstance(inner, str) and _fits_block(inner):
            yield f"{indent}{_scalar(key)}: {'|' if inner.endswith(_BREAK) else '|-'}"
            yield from (f"{indent}  {line}" if line else "" for line in inner.removesuffix(_BREAK).split(_BREAK))
        else:
            yield f"{indent}{_scalar(key)}: {_flow(inner)}"


def _flow(value: JSONValue) -> str:
    if is_list(value):
        return f"[{', '.join(map(_flow, value))}]"
    if is_object(value):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(inner)}" for key, inner in value.items()) + "}"
    return _scalar(value) if isinstance(value, str) else json.dumps(value)


def _fits_block(text: str) -> bool:
    """Tell whether a text of several lines keeps its meaning as a block text."""
    lines = text.removesuffix(_BREAK).split(_BREAK)
    are_plain = all(line.isprintable() and line == line.rstrip() for line in lines)
    return len(lines) > 1 and are_plain and bool(lines[0]) and bool(lines[-1]) and not lines[0].startswith(" ")


def _scalar(text: str) -> str:
    """Return a text in a form that is valid anywhere in YAML; quoted unless it is plain words."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS_OF_YAML_1_1:
        try:
            if scalar_value(text) == text:
                return text
        except ValueError:
            pass
    return json.dumps(text, ensure_ascii=not text.isprintable())
