"""Frozen: the decorator of nearly all records here: a frozen, keyword-only dataclass with slots.

It gives what `@dataclass(frozen=True, kw_only=True, slots=True)` gives. But Python writes and compiles six methods for
each of those when it is imported, a millisecond a class and two hundred classes; here a method is made when it is first
asked for, and most never are. The standard library still makes them.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field, fields, is_dataclass
from typing import Any, NoReturn, TypeVar, cast, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Make a frozen, keyword-only dataclass with slots of a class."""
    own = vars(cls)
    if any(map(is_dataclass, cls.__mro__[1:])):
        return dataclass(frozen=True, kw_only=True, slots=True)(cls)
    record: Any = dataclass(init=False, repr=False, eq=False, kw_only=True, slots=True)(cls)
    record.__dataclass_params__ = _PARAMETERS
    record.__setattr__, record.__delattr__ = _refuse_change, _refuse_removal
    record.__getstate__, record.__setstate__ = _state, _set_state
    for name in _MADE_LATER:
        # A class that says itself what is equal has a hash of `None` by that, which is no word of its own on hashes.
        if own.get(name) is None:
            setattr(record, name, _Later(record, name))
    return cast("type[T]", record)


_MADE_LATER = ("__init__", "__repr__", "__eq__", "__hash__")


class _Later:
    """Stands for a method of a record until it is asked for; then the method stands there itself."""

    def __init__(self, record: type, name: str) -> None:
        self._record, self._name = record, name

    def __get__(self, instance: object, owner: type) -> Any:
        record, name = self._record, self._name
        if instance is None and name == "__hash__":
            # Every default of a field is asked whether its class has one.
            return self
        own = fields(cast("Any", record))
        named: dict[str, Any] = {
            "__module__": record.__module__,
            "__qualname__": record.__qualname__,
            # Else its signature is read and written out for want of words.
            "__doc__": record.__doc__ or record.__name__,
            "__annotations__": {one.name: one.type for one in own},
            **{one.name: one for one in own},
        }
        if hasattr(record, "__post_init__"):
            # That there is one is all that is asked here: the record's own is called.
            named["__post_init__"] = None
        make = dataclass(
            frozen=True,
            kw_only=True,
            init=name == "__init__",
            repr=name == "__repr__",
            eq=name in ("__eq__", "__hash__"),
        )
        twin = make(type(record.__name__, (), named))
        method = vars(twin)[name]
        setattr(record, name, method)
        return method.__get__(instance, owner)

    def __call__(self, instance: object) -> Any:
        return self.__get__(instance, type(instance))()


def _refuse_change(self: object, name: str, _value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_removal(self: object, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Example:
    """What the standard library writes down of such a class."""


_PARAMETERS: Any = cast("Any", _Example).__dataclass_params__
