"""Mapping: what a credential is given, by the first rule that matches it."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pegboard import DefinitionError
from pegboard.auth.claim_templates import Template
from pegboard.auth.rule_matching import grant_of
from pegboard.auth.rules import Credential, MapRule
from tests.auth.parts import rule
from tests.sizes import examples


def token(**claims: Any) -> Credential:
    return Credential(owner="jwt:1", claims={"sub": "ann", **claims})


def given_by(rules: list[MapRule], credential: Credential) -> tuple[object, ...] | None:
    grant = grant_of(rules, credential)
    return None if grant is None else (grant.user, grant.space, grant.roles, grant.profiles)


def test_texts_are_filled_with_what_the_token_says() -> None:
    rules = [rule(claim={"team": "support"}, user="{sub}", space="org-{org_id}", roles=("{groups}", "staff"),
                  profiles=("chat",))]  # fmt: skip
    said = token(team="support", org_id=7, groups=["a", "b", "a"])
    assert given_by(rules, said) == ("ann", "org-7", ("a", "b", "staff"), ("chat",))


def test_the_first_rule_that_matches_counts_even_when_it_cannot_be_filled() -> None:
    rules = [rule(claim={"team": "support"}, user="{email}", profiles=("chat",)),
             rule(claim={"sub": "*"}, user="{sub}", profiles=("all",))]  # fmt: skip
    assert given_by(rules, token(team="support")) is None
    assert given_by(rules, token(team="sales")) == ("ann", None, (), ("all",))


def test_a_credential_that_no_rule_names_is_given_nothing() -> None:
    rules = [
        rule(key="ann-laptop", user="ann", profiles=("chat",)),
        rule(claim={"team": "support"}, profiles=("chat",)),
    ]
    assert given_by(rules, token()) is None
    assert given_by(rules, Credential(owner="key:1", key="bob")) is None
    assert given_by(rules, Credential(owner="key:1", key="ann-laptop")) == ("ann", None, (), ("chat",))
    assert given_by([], token()) is None


def test_a_key_is_never_taken_for_a_token_nor_a_token_for_a_key() -> None:
    assert given_by([rule(claim={"key": "ann"}, profiles=("chat",))], Credential(owner="key:1", key="ann")) is None
    assert given_by([rule(key="ann", profiles=("chat",))], token(key="ann")) is None


MATCHES: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({"team": "support"}, {"team": "support"}, True),
    ({"team": "support"}, {"team": ["sales", "support"]}, True),
    ({"team": "support"}, {"team": "Support"}, False),
    ({"team": "support"}, {"team": "support sales"}, False),
    ({"team": "support"}, {"team": {"support": True}}, False),
    ({"team": "support"}, {"team": [["support"]]}, False),
    ({"team": "support"}, {"team": None}, False),
    ({"scope": "read"}, {"scope": "write read"}, True),
    ({"scope": "read"}, {"scope": "reader"}, False),
    ({"level": 1}, {"level": 1}, True),
    ({"level": 1}, {"level": True}, False),
    ({"level": 1}, {"level": "1"}, False),
    ({"verified": True}, {"verified": True}, True),
    ({"verified": True}, {"verified": 1}, False),
    ({"verified": True}, {"verified": "true"}, False),
    ({"verified": False}, {}, False),
    ({"team": "*"}, {"team": "x"}, True),
    ({"team": "*"}, {}, False),
    ({"team": "*"}, {"team": None}, False),
    ({"team": "a", "level": 1}, {"team": "a"}, False),
]


@pytest.mark.parametrize(("wanted", "said", "does"), MATCHES)
def test_a_rule_matches_what_the_token_says_and_nothing_like_it(
    wanted: dict[str, Any], said: dict[str, Any], does: bool
) -> None:
    assert (given_by([rule(claim=wanted, profiles=("chat",))], token(**said)) is not None) == does


@pytest.mark.parametrize("value", [None, "", True, 1.5, [], {}, "a\nb", "a\x00", "a\u202eb", "x" * 300, ["a", 1.5]])
def test_a_claim_that_names_nobody_refuses_the_credential(value: object) -> None:
    for one in (rule(claim={"sub": "*"}, user="{name}"), rule(claim={"sub": "*"}, roles=("r-{name}",)),
                rule(claim={"sub": "*"}, profiles=("{name}",))):  # fmt: skip
        assert given_by([one], token(name=value)) is None, one


@pytest.mark.parametrize("text", ["", "{", "}", "{}", "a{b", "{a}}", "{{a}}", "{a{b}}"])
def test_a_text_with_stray_braces_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError, match="write a plain name"):
        Template(text)


CLAIM = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.lists(st.text(max_size=5), max_size=3)
)


@settings(max_examples=examples(400, few=15))
@given(said=st.dictionaries(st.sampled_from(["sub", "team", "org", "groups"]), CLAIM), more=CLAIM)
def test_whatever_a_token_says_a_grant_holds_only_printable_names(said: dict[str, Any], more: object) -> None:
    rules = [rule(claim={"team": "*"}, user="{sub}", space="{org}", roles=("{groups}",), profiles=("p",))]
    grant = grant_of(rules, Credential(owner="o", claims={**said, "other": more}))
    if grant is not None:
        assert all(
            isinstance(name, str) and name and name.isprintable() for name in (grant.user, grant.space, *grant.roles)
        )


def test_who_has_other_rights_is_another_owner() -> None:
    def owner(**claims: Any) -> str:
        grant = grant_of([rule(claim={"sub": "*"}, space="{org}", profiles=("p",))], token(**claims))
        assert grant is not None
        return grant.owner

    assert owner(org="a") == owner(org="a", exp=5) != owner(org="b")
