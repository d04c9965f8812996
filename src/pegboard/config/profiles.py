"""Profiles: create the policies and profiles of a config, and check the names in them."""

from __future__ import annotations

from collections.abc import Iterator, Set

from pegboard.catalog import Catalog
from pegboard.config.build_context import BuildContext
from pegboard.config.config import Declared
from pegboard.config.forms.profile_form import ProfileForm
from pegboard.config.forms.value_types import rate_limit
from pegboard.config.yaml.tree import At
from pegboard.core.names import fold, nearest
from pegboard.core.unmatched_globs import unmatched
from pegboard.discovery.meta_tools.specs import MetaNames
from pegboard.model.policy import Policy
from pegboard.model.profile import Profile


def declare_profiles(build: BuildContext) -> None:
    """Register every profile of the config; an undeclared group is a problem."""
    registry = build.catalog.registry
    # Groups of refused tools count as declared.
    known = registry.known_groups() | {group for tool in build.config.tools for group in tool.value.groups or ()}
    known |= build.config.refused.groups
    for name, declared in build.config.profiles.items():
        for index, group in enumerate(declared.value.include or ()):
            if group not in known:
                at = place_of(declared.at / "include", index)
                build.report.add(at.problem(f"unknown group {group!r}.{nearest(group, known, label='Groups')}"))
        registry.add_profile(_profile(name, declared))


def _profile(name: str, declared: Declared[ProfileForm]) -> Profile:
    form, at = declared.value, declared.at
    return Profile(
        name=name,
        include=form.include,
        policy=_policy(form, at),
        exposure=form.mode,
        hide_unconnected=form.hide_unconnected,
        pinned=form.pinned,
        rename={} if form.rename is None else form.rename.names(),
        require_context=form.require_context,
        token_budget=form.token_budget,
        rate_limit=rate_limit(form.rate_limit),
        origin=(at / "include").origin,
    )


def _policy(form: ProfileForm, at: At) -> Policy:
    """Return the policy of a profile. Each list is a separate layer, so that `why` can name the line of the rule."""
    deny = Policy(deny=form.deny, origin=(at / "deny").origin) if form.deny else None
    allow = Policy(allow=form.allow, origin=(at / "allow").origin) if form.allow is not None else None
    if deny is not None and allow is not None:
        return allow.intersect(deny)
    return deny or allow or Policy(origin=at.origin)


# ---- problems, once the catalog has its tools


def check_profiles(build: BuildContext) -> None:
    """Report undeclared namespaces in policies, and tools that a meta tool would hide."""
    for name, declared in build.config.profiles.items():
        for fault in unmatched_globs(build.catalog, name, more=build.config.refused.namespaces)[0]:
            # The error begins with the glob in quotes.
            build.report.add(*(at.problem(fault) for glob, at in globs_of(declared) if fault.startswith(repr(glob))))
        _check_meta_names(name, declared, build)


def _check_meta_names(name: str, declared: Declared[ProfileForm], build: BuildContext) -> None:
    """Report declared tools with the same name as one of the profile's meta tools."""
    if declared.value.mode == "direct":
        return
    registry = build.catalog.registry
    meta = {fold(meta) for meta in MetaNames.renamed(registry.profiles[name].rename)}
    for entry in registry.build().entries:
        if fold(entry.wire_name) in meta:
            text = f"{entry.wire_name!r} ({entry.spec.origin}) has the name of a meta tool; rename one, or set `direct`"
            build.report.add((declared.at / "exposure").problem(text))


def unmatched_globs(catalog: Catalog, profile: str, *, more: Set[str] = frozenset()) -> tuple[list[str], list[str]]:
    """Return the problems of the globs in a profile's policy, and the globs that match no tool at present.

    `more` are additional namespaces that count as declared.
    """
    registry = catalog.registry
    return unmatched(
        registry.profiles[profile].policy, registry.build(), registry.mirrored(), registry.namespaces() | more
    )


def globs_of(declared: Declared[ProfileForm]) -> Iterator[tuple[str, At]]:
    """Yield every glob of `allow:` and `deny:` with its place."""
    for side, globs in (("allow", declared.value.allow or ()), ("deny", declared.value.deny)):
        for index, glob in enumerate(globs):
            yield glob, place_of(declared.at / side, index)


def place_of(at: At, index: int) -> At:
    """Return the place of one name in a list that may also be a single text."""
    return at / index if (at / index).exists else at
