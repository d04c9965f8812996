"""Frozen: the decorators of the records here, `frozen` of nearly all, and `record` of those that change or are short.

They give what `@dataclass` gives with the same words. But Python writes and compiles six methods for each of those when
it is imported, a millisecond a class and two hundred classes; here a method is made when it is first asked for, and
most never are. The standard library still says what the fields are, and makes all methods but `__init__`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields, is_dataclass
from typing import Any, Generic, NoReturn, Self, TypeVar, cast, dataclass_transform, overload

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Make a frozen, keyword-only dataclass with slots of a class."""
    return record(frozen=True, kw_only=True, slots=True)(cls)


@dataclass_transform(field_specifiers=(field,))
def record(
    *,
    frozen: bool = False,
    kw_only: bool = False,
    slots: bool = False,
    weakref_slot: bool = False,
    eq: bool = True,
    repr: bool = True,  # noqa: A002 - the word of the standard library
) -> Callable[[type[T]], type[T]]:
    """Return what makes a dataclass of a class, with the words of the standard library."""

    def made(cls: type[T]) -> type[T]:
        if any(map(is_dataclass, cls.__mro__[1:])):
            words: Any = {"frozen": frozen, "kw_only": kw_only, "slots": slots, "weakref_slot": weakref_slot}
            return dataclass(**words, eq=eq, repr=repr)(cls)
        own = vars(cls)
        made: Any = dataclass(
            init=False, repr=False, eq=False, kw_only=kw_only, slots=slots, weakref_slot=weakref_slot
        )(cls)
        parameters = made.__dataclass_params__
        parameters.init, parameters.repr, parameters.eq, parameters.frozen = True, repr, eq, frozen
        if frozen:
            made.__setattr__, made.__delattr__ = _refuse_change, _refuse_removal
            if slots:
                made.__getstate__, made.__setstate__ = _state, _set_state
        later = {"__init__": True, "__repr__": repr, "__eq__": eq, "__hash__": eq and frozen}
        for name, is_wanted in later.items():
            # A class that says itself what is equal has a hash of `None` by that, which says nothing of hashes.
            if is_wanted and own.get(name) is None:
                setattr(made, name, _Later(made, name))
        if eq and not frozen and "__hash__" not in own:
            made.__hash__ = None
        return cast("type[T]", made)

    return made


class _Later:
    """Stands for a method of a record until it is asked for; then the method stands there itself."""

    def __init__(self, record: type, name: str) -> None:
        self._record, self._name = record, name

    def __get__(self, instance: object, owner: type) -> Any:
        record, name = self._record, self._name
        if instance is None and name == "__hash__":
            # Every default of a field is asked whether its class has one.
            return self
        method = _init_of(record) if name == "__init__" else _of_a_twin(record, name)
        setattr(record, name, method)
        return method.__get__(instance, owner)

    def __call__(self, instance: object) -> Any:
        return self.__get__(instance, type(instance))()


def _of_a_twin(record: Any, name: str) -> Any:
    """Return a method that the standard library makes for a class with the same fields."""
    own = fields(record)
    named: dict[str, Any] = {
        "__module__": record.__module__,
        "__qualname__": record.__qualname__,
        # Else its signature is read and written out for want of words.
        "__doc__": record.__doc__ or record.__name__,
        "__annotations__": {one.name: one.type for one in own},
        **{one.name: one for one in own},
    }
    # What has no `__init__` has no order of its fields either.
    make = dataclass(frozen=True, init=False, repr=name == "__repr__", eq=name in ("__eq__", "__hash__"))
    twin: Any = make(type(record.__name__, (), named))
    return cast("Any", vars(twin)[name])


def _init_of(record: Any) -> Any:
    """Return the `__init__` of a record, as the standard library has it."""
    scope: dict[str, Any] = {"_set": object.__setattr__, "_made": _MADE}
    types: dict[str, Any] = {}
    by_place, by_name, lines = list[str](), list[str](), list[str]()
    is_frozen = record.__dataclass_params__.frozen
    own: tuple[Field[Any], ...] = fields(record)
    for place, one in enumerate(own):
        value, default = one.name, ""
        if one.default_factory is not MISSING:
            scope[f"_f{place}"] = one.default_factory
            default, call = "=_made", f"_f{place}()"
            value = f"{call} if {one.name} is _made else {one.name}" if one.init else call
        elif one.default is not MISSING:
            scope[f"_d{place}"] = one.default
            default = f"=_d{place}"
            value = value if one.init else f"_d{place}"
        elif not one.init:
            continue
        if one.init:
            types[one.name] = one.type
            (by_name if one.kw_only else by_place).append(f"{one.name}{default}")
        lines.append(f" _set(self,{one.name!r},{value})" if is_frozen else f" self.{one.name}={value}")
    if hasattr(record, "__post_init__"):
        lines.append(" self.__post_init__()")
    words = ",".join(["self", *by_place, *(["*", *by_name] if by_name else [])])
    made: dict[str, Any] = {}
    exec("\n".join([f"def __init__({words}):", *lines, " return None"]), scope, made)  # noqa: S102 - names of fields alone
    init = made["__init__"]
    init.__module__, init.__qualname__ = record.__module__, f"{record.__qualname__}.__init__"
    init.__annotations__ = {**types, "return": None}
    return init


def _refuse_change(self: object, name: str, _value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_removal(self: object, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


@dataclass(kw_only=True)
class _Example:
    """What the standard library writes down of a default that is made."""

    items: list[Any] = field(default_factory=list[Any])


_MADE: Any = cast("Any", _Example).__init__.__kwdefaults__["items"]


class worked_out(Generic[T_co]):  # noqa: N801 - a decorator
    """A property that is worked out when it is first asked for, and kept in the `__dict__` of its record.

    That of the standard library holds a lock in Python 3.11, one for all records of a class: a child that was forked
    while a thread of its parent worked one out would wait for it for ever. Here two threads may both do the work.
    """

    def __init__(self, work_out: Callable[[Any], T_co]) -> None:
        self._work_out, self._name, self.__doc__ = work_out, "", work_out.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, record: None, owner: type) -> Self: ...
    @overload
    def __get__(self, record: object, owner: type) -> T_co: ...
    def __get__(self, record: object | None, owner: type) -> Self | T_co:
        if record is None:
            return self
        value = record.__dict__[self._name] = self._work_out(record)
        return value
