"""Secrets: values that cannot be printed, logged or serialised."""

from __future__ import annotations

MASK = "***"


class Secret(str):
    """A value that prints, formats, pickles and serialises as `***`. `reveal()` returns the real value."""

    __slots__ = ("_value",)
    _value: str

    def __new__(cls, value: str) -> Secret:
        secret = super().__new__(cls, MASK)
        secret._value = value._value if isinstance(value, Secret) else str(value)
        return secret

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return f"Secret({MASK!r})"

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        return (Secret, (MASK,))

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self
