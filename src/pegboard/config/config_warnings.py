"""Config warnings: what is odd in a config but allowed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pegboard.catalog import Catalog
from pegboard.config.config import Config, Declared
from pegboard.config.forms.profile_form import ProfileForm
from pegboard.config.profiles import globs_of, place_of, unmatched_globs
from pegboard.core.judge import applies
from pegboard.core.names import nearest
from pegboard.model.bounds import LEFT_OUT_SHOWN
from pegboard.model.error import Problem


def warnings(config: Config, catalog: Catalog) -> list[Problem]:
    """Return what is odd but allowed: globs that match no file or no tool now, tools that no profile sees."""
    problems = [*config.open_files, *config.warnings]
    for name, declared in config.profiles.items():
        idle = set(unmatched_globs(catalog, name)[1])
        problems += [
            at.problem(f"{glob!r} matches no tool at present") for glob, at in globs_of(declared) if glob in idle
        ]
        problems += _idle_pins(declared, catalog)
    for tool in config.tools:
        left_out: Sequence[tuple[str, str]] = getattr(catalog.registry.sources.get(tool.value.name), "rejected", ())
        problems += [tool.at.problem(f"{name!r} was left out: {reason}") for name, reason in left_out[:LEFT_OUT_SHOWN]]
        if len(left_out) > LEFT_OUT_SHOWN:
            problems.append(tool.at.problem(f"{len(left_out) - LEFT_OUT_SHOWN} more were left out"))
    return problems + list(_unreachable_tools(catalog))


def _idle_pins(declared: Declared[ProfileForm], catalog: Catalog) -> list[Problem]:
    entries = catalog.registry.build().entries
    return [
        place_of(declared.at / "pinned", index).problem(f"{glob!r} matches no tool at present")
        for index, glob in enumerate(declared.value.pinned)
        if not any(applies(glob, entry) for entry in entries)
    ]


def _unreachable_tools(catalog: Catalog) -> Iterator[Problem]:
    """Yield a warning for each tool that no caller of any profile can see, for the names of its groups alone."""
    profiles = catalog.registry.profiles.values()
    if not profiles or any(profile.include is None for profile in profiles):
        return
    included = {group for profile in profiles for group in profile.include or ()}
    for entry in catalog.registry.build().entries:
        spec = entry.spec
        if spec.internal_only or not included.isdisjoint(spec.groups):
            continue
        named = f"{spec.groups[0]!r}" if len(spec.groups) == 1 else f"any of {list(spec.groups)}"
        message = f"no profile includes {named}.{nearest(spec.groups[0], included, label='Included')}"
        yield Problem(where=spec.origin, path=entry.wire_name or spec.name, message=message)
