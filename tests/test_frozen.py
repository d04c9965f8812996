"""Records: what `@frozen` makes is what the standard library makes, a method at a time."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import weakref
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from pegboard.frozen import frozen, record


def _fresh_list() -> list[int]:
    return []


@frozen
class Ours:
    """A record."""

    a: int
    b: list[int] = field(default_factory=_fresh_list)
    c: str = field(default="x", repr=False, compare=False)
    d: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Theirs:
    """A record."""

    a: int
    b: list[int] = field(default_factory=_fresh_list)
    c: str = field(default="x", repr=False, compare=False)
    d: float | None = None


@frozen
class Checked:
    """A record that judges its values, and says itself what is equal."""

    a: int

    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError(f"{self.a} is below 0")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checked)

    def __hash__(self) -> int:
        return 1


@frozen
class Wider(Ours):
    """One with a field more."""

    e: int = 0


@dataclass(frozen=True)
class TheirsOfOurs(Ours):
    """A subclass that somebody else wrote."""

    e: int = 0


class Plain(Ours):
    """A subclass that is no record of its own."""

    def double(self) -> int:
        return 2 * self.a


def test_a_record_says_of_itself_what_one_of_the_standard_library_says() -> None:
    assert repr(Ours(a=1, b=[2])) == repr(Theirs(a=1, b=[2])).replace("Theirs", "Ours")
    assert inspect.signature(Ours) == inspect.signature(Theirs)
    assert [(one.name, one.type) for one in dataclasses.fields(Ours)] == [
        (one.name, one.type) for one in dataclasses.fields(Theirs)
    ]
    assert dataclasses.asdict(Ours(a=1)) == dataclasses.asdict(Theirs(a=1))
    own, theirs = Ours.__init__, Theirs.__init__
    assert (own.__qualname__, own.__module__, own.__annotations__) == (
        theirs.__qualname__.replace("Theirs", "Ours"), theirs.__module__, theirs.__annotations__,
    )  # fmt: skip


def test_records_are_equal_and_hash_by_the_fields_that_count() -> None:
    assert Ours(a=1, c="one") == Ours(a=1, c="other") != Ours(a=2)
    assert Ours(a=1) != Theirs(a=1)
    assert hash(Wider(a=1, b=(), d=0.5)) == hash(Wider(a=1, b=(), d=0.5, c="other"))  # type: ignore[arg-type] - hashable
    with pytest.raises(TypeError, match="unhashable type: 'list'"):
        hash(Ours(a=1))
    assert (Checked(a=1) == Checked(a=2), hash(Checked(a=3))) == (True, 1)


def test_a_hash_may_be_borrowed_before_anything_was_hashed() -> None:
    @frozen
    class Lender:
        a: int

    class Borrower(Lender):
        def __eq__(self, other: object) -> bool:
            return self is other

        __hash__ = Lender.__hash__

    assert Lender.__hash__(Lender(a=1)) == hash(Lender(a=1)) == hash(Borrower(a=1))


def test_no_record_can_be_changed() -> None:
    record = Ours(a=1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'a'"):
        record.a = 2  # type: ignore[misc] - that is what is tried
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'a'"):
        del record.a  # type: ignore[misc] - that is what is tried
    with pytest.raises(FrozenInstanceError):
        record.unknown = 2  # type: ignore[attr-defined] - that is what is tried
    assert (record, replace(record, a=2)) == (Ours(a=1), Ours(a=2))


def test_a_record_takes_its_fields_by_name_alone() -> None:
    with pytest.raises(TypeError, match=r"Ours.__init__\(\) takes 1 positional argument but 2 were given"):
        Ours(1)  # type: ignore[call-arg] - that is what is tried
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'a'"):
        Ours()  # type: ignore[call-arg] - that is what is tried
    with pytest.raises(ValueError, match="-1 is below 0"):
        Checked(a=-1)


def test_records_travel_whole() -> None:
    record = Ours(a=1, b=[2], c="three")
    for copied in (pickle.loads(pickle.dumps(record)), copy.copy(record), copy.deepcopy(record)):
        assert (copied, copied.c) == (record, "three")


def test_records_may_be_derived_from() -> None:
    assert repr(Wider(a=1, e=2)) == "Wider(a=1, b=[], d=None, e=2)"
    assert repr(TheirsOfOurs(a=1, e=2)) == "TheirsOfOurs(a=1, b=[], d=None, e=2)"
    assert (Plain(a=2).double(), repr(Plain(a=2)), Plain(a=2) == Plain(a=2)) == (4, "Plain(a=2, b=[], d=None)", True)


@record(slots=True)
class Changing:
    """A record that may change, by place or by name."""

    a: int
    b: list[int] = field(default_factory=_fresh_list)
    c: int = field(default=3, init=False)
    d: str = field(default="d", kw_only=True)


@dataclass(slots=True)
class TheirsChanging:
    """A record that may change, by place or by name."""

    a: int
    b: list[int] = field(default_factory=_fresh_list)
    c: int = field(default=3, init=False)
    d: str = field(default="d", kw_only=True)


@record(frozen=True, slots=True, weakref_slot=True, eq=False, repr=False)
class Short:
    """A record with an identity of its own."""

    a: int


def test_the_words_of_the_standard_library_mean_the_same_of_a_record() -> None:
    assert inspect.signature(Changing) == inspect.signature(TheirsChanging)
    assert repr(Changing(1, [2], d="e")) == repr(TheirsChanging(1, [2], d="e")).replace("Theirs", "")
    ours, other = Changing(1), Changing(1)
    ours.b.append(1)
    assert (ours.c, other.b, ours != other, copy.copy(ours) == ours) == (3, [], True, True)
    ours.a = 2
    with pytest.raises(TypeError, match="unhashable type: 'Changing'"):
        hash(ours)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"):
        Changing()  # type: ignore[call-arg] - that is what is tried
    assert (Short(1) == Short(1), len({Short(1), Short(1)})) == (False, 2)
    short = Short(1)
    assert weakref.ref(short)() is short
    assert repr(short).startswith("<")
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'a'"):
        short.a = 2  # type: ignore[misc] - that is what is tried
