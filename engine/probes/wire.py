"""Values as JSON and back, by their types: dataclasses, named tuples, lists, numpy arrays. Imports no torch.

JSON has no NaN and no infinity: such a number is the text that Python writes for it ("nan", "-inf").
"""

import dataclasses
import inspect
import json
import math
import types
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np


def dumps(value: Any) -> bytes:
    """Any such value as JSON. Raises TypeError: for a value of another type, which is a bug."""
    return json.dumps(plain(value), allow_nan=False, separators=(",", ":")).encode()


def plain(value: Any) -> Any:
    """The same value of JSON's own types."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Path():
            return str(value)
        case np.ndarray():
            numbers = value.tolist()
            return numbers if value.dtype == bool or np.isfinite(value).all() else plain(numbers)
        case Mapping():
            return {str(key): plain(one) for key, one in value.items()}
        case list() | tuple():
            return [plain(one) for one in value]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        case _:
            raise TypeError(f"{type(value).__name__} cannot be sent as JSON")


def read(kind: Any, value: Any, name: str = "it") -> Any:
    """A value of this type from JSON's.

    name: what it is called in a message.
    Raises ValueError: when the value is of another type; the message gives got and allowed.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):
        return _one_of(inner, value, name)
    if kind is float:
        return _float(value, name)
    if kind in (int, bool, str, types.NoneType):
        return _is(kind, value, name)
    if kind is Path:
        return Path(_is(str, value, name))
    if origin is Literal:
        if value not in inner:
            raise ValueError(f"{name} is {value!r}; allowed: {', '.join(map(repr, inner))}.")
        return value
    if origin is np.ndarray:
        array = np.array(_is(list, value, name), dtype=get_args(inner[1])[0])
        array.flags.writeable = False
        return array
    if origin in (list, Sequence) or (origin is tuple and inner[-1] is Ellipsis):
        found = [read(inner[0], one, f"{name}[{at}]") for at, one in enumerate(_is(list, value, name))]
        return tuple(found) if origin is tuple else found
    if origin is tuple:
        return tuple(_each(range(len(inner)), inner, _is(list, value, name), name))
    if origin in (dict, Mapping):
        pairs = _is(dict, value, name).items()
        return {inner[0](key): read(inner[1], one, f"{name}[{key!r}]") for key, one in pairs}
    if issubclass(kind, tuple):  # a named one
        return kind(*_each(_hints(kind), _hints(kind).values(), _is(list, value, name), name))
    return kind(**read_fields(kind, _is(dict, value, name), name))


def read_fields(kind: Any, value: Mapping[str, Any], name: str = "it") -> dict[str, Any]:
    """The arguments of a function or of a dataclass, each by its type.

    Raises ValueError: as ``read``, and when one is missing or left over.
    """
    hints = {field: hint for field, hint in _hints(kind).items() if field != "return"}
    if value.keys() - hints.keys() or _needed(kind) - value.keys():
        got = ", ".join(value) or "nothing"
        raise ValueError(f"{name} has {got}; allowed: {', '.join(hints) or 'nothing'}.")
    return {field: read(hints[field], one, field) for field, one in value.items()}


@lru_cache(maxsize=256)
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(inspect.unwrap(kind))


@lru_cache(maxsize=256)
def _needed(kind: Any) -> frozenset[str]:
    parameters = inspect.signature(kind).parameters.values()
    return frozenset(one.name for one in parameters if one.default is inspect.Parameter.empty)


def _is(kind: type, value: Any, name: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        got = repr(value)[:80]
        raise ValueError(f"{name} is {got}; allowed: {_CALLED[kind]}.")
    return value


_CALLED = {
    int: "a whole number",
    bool: "true or false",
    str: "a text",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


def _float(value: Any, name: str) -> float:
    number = isinstance(value, float | int) and not isinstance(value, bool)
    with suppress(OverflowError):
        if number or value in ("nan", "inf", "-inf"):
            return float(value)
    raise ValueError(f"{name} is {str(value)[:80]!r}; allowed: a number.")


def _one_of(kinds: Sequence[Any], value: Any, name: str) -> Any:
    if value is None and types.NoneType in kinds:
        return None
    *others, last = (kind for kind in kinds if kind is not types.NoneType)
    for kind in others:
        with suppress(ValueError):
            return read(kind, value, name)
    return read(last, value, name)


def _each(places: Iterable[Any], kinds: Collection[Any], values: list[Any], name: str) -> list[Any]:
    if len(kinds) != len(values):
        raise ValueError(f"{name} has {len(values)} parts; allowed: {len(kinds)}.")
    return [read(kind, one, f"{name}[{at}]") for at, kind, one in zip(places, kinds, values, strict=True)]
