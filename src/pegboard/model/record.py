"""Record: additions to `msgspec.Struct`: a copy with changes, a property computed once, a repr without credentials."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

import msgspec

R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)
CREDENTIAL_FIELDS = frozenset({"headers", "env", "key", "keys"})


def replace(record: R, /, **changes: Any) -> R:
    """Return a copy of a record with some fields changed, as `copy.replace` does from Python 3.13 on.

    Takes the records of Pegboard and plain dataclasses; `dataclasses.replace` takes dataclasses only.

    ```python
    from pegboard import Policy, replace

    strict = replace(Policy(allow=("docs.*",)), deny=("docs.delete",))
    assert strict.allow == ("docs.*",)
    ```
    """
    if isinstance(record, msgspec.Struct):
        return msgspec.structs.replace(record, **changes)
    plain: Any = record
    return dataclasses.replace(plain, **changes)


class CarriesCredentials(msgspec.Struct, frozen=True, kw_only=True):
    """A record whose repr masks the fields that may hold credentials: `headers`, `env`, `key` and `keys`.

    Reprs are found in logs, tracebacks and failed assertions.
    """

    def __repr__(self) -> str:
        shown = [
            f"{name}={'***' if name in CREDENTIAL_FIELDS else repr(getattr(self, name))}"
            for name in self.__struct_fields__
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


class lazy_property(Generic[T_co]):  # noqa: N801 - a decorator
    """A property that is computed on first use and kept in the `__dict__` of its record (`dict=True`).

    In Python 3.11 `functools.cached_property` has one lock per class. A child process that is forked while another
    thread computes such a property would wait for that lock for ever. Here two threads may both compute the value.
    """

    def __init__(self, compute: Callable[[Any], T_co]) -> None:
        self._compute, self._name, self.__doc__ = compute, "", compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, record: None, owner: type) -> Self: ...
    @overload
    def __get__(self, record: object, owner: type) -> T_co: ...
    def __get__(self, record: object | None, owner: type) -> Self | T_co:
        if record is None:
            return self
        value = record.__dict__[self._name] = self._compute(record)
        return value
