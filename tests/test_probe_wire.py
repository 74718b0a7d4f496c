"""Values as JSON and back: every type that a probe takes or returns, and what is refused."""

import json
import math
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.probes import registry, wire
from engine.system.errors import LabError


class Place(NamedTuple):
    row: int
    column: int


@dataclass(frozen=True)
class Inner:
    name: str
    share: float | None


@dataclass(frozen=True, eq=False)
class Everything:
    whole: int
    number: float
    truth: bool
    path: Path
    place: Place
    pair: tuple[str, float]
    many: tuple[int, ...]
    inner: list[Inner]
    by_size: dict[float, Inner]
    array: NDArray[np.float32]
    mask: NDArray[np.bool_]
    how: Literal["zero", "mean"] = "zero"
    more: Inner | None = None


VALUE = Everything(
    whole=3, number=-math.inf, truth=True, path=Path("/a b"), place=Place(1, 2), pair=("é", 0.1), many=(1, 2),
    inner=[Inner("a", None), Inner("b", math.nan)], by_size={0.5: Inner("c", 1.0)},
    array=np.array([[1.5, math.nan], [math.inf, 2]], np.float32), mask=np.array([True, False]),
)  # fmt: skip


def test_every_type_comes_back_as_it_was():
    text = wire.dumps(VALUE)
    assert "NaN" not in text.decode()
    assert "Infinity" not in text.decode()
    back = wire.read(Everything, json.loads(text))
    np.testing.assert_array_equal(back.array, VALUE.array)
    np.testing.assert_array_equal(back.mask, VALUE.mask)
    assert back.array.dtype == np.float32
    assert back.mask.dtype == bool
    assert not back.array.flags.writeable, "what several readers are shown nobody may change"
    for name in ("whole", "number", "truth", "path", "place", "pair", "many", "by_size", "how", "more"):
        assert getattr(back, name) == getattr(VALUE, name), name
    assert back.inner[0] == VALUE.inner[0]
    assert math.isnan(back.inner[1].share)


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        (int, "3", "it is '3'; allowed: a whole number."),
        (int, True, "it is True; allowed: a whole number."),
        (float, "none", "it is 'none'; allowed: a number."),
        (float, 10**400, "allowed: a number."),
        (str, 3, "it is 3; allowed: a text."),
        (list[int], [1, "a"], r"it\[1\] is 'a'; allowed: a whole number."),
        (tuple[int, int], [1], "it has 1 parts; allowed: 2."),
        (Literal["zero", "mean"], "none", "it is 'none'; allowed: 'zero', 'mean'."),
        (Inner, {"name": "a"}, "it has name; allowed: name, share."),
        (Inner, {"name": "a", "share": 1, "odd": 2}, "it has name, share, odd; allowed: name, share."),
        (Inner, [], r"it is \[\]; allowed: an object."),
        (int | None, "a", "allowed: a whole number."),
    ],
)
def test_what_is_of_another_type_is_refused_in_a_sentence(kind, value, says):
    with pytest.raises(ValueError, match=says):
        wire.read(kind, value)


def test_what_cannot_be_sent_is_a_bug():
    with pytest.raises(TypeError, match="object cannot be sent as JSON"):
        wire.dumps([object()])


@pytest.mark.parametrize("name", registry.PROBES)
def test_every_probe_is_a_function_of_known_types_that_returns_what_is_registered(name):
    probe = registry.PROBES[name]
    assert probe.name == name
    hints = typing.get_type_hints(getattr(probe.resolved(), "__wrapped__", probe.resolved()))
    assert hints.pop("return") == probe.result
    assert probe.limit_s >= 3 * probe.seconds, "a loaded machine is several times as slow"


def test_arguments_are_checked_before_anything_is_computed():
    with pytest.raises(LabError, match="the probe has odd; allowed: sentence, seed"):
        registry.ORDER.call({"odd": 1})
    with pytest.raises(LabError, match="the arguments are 3; allowed: one JSON object"):
        registry.ORDER.call(3)
    with pytest.raises(LabError, match="no probe 'odd'; there are: averages, attention"):
        registry.known("odd")
