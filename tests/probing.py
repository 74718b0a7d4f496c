"""Probes answered in the process of a test: for real, or by what the test puts in their place."""

import json
import threading
from collections.abc import Callable
from typing import Any

from engine.probes import client, wire


class Here:
    """Stands for ``client.ask``.

    asked: name and arguments of what was computed, in the order asked; what is asked again is not.
    answers: by a probe's name, a function of its arguments that answers in its place.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, Callable[..., Any]] = {}
        self._kept: dict[str, Any] = {}
        self._one_at_a_time = threading.Lock()

    @property
    def names(self) -> list[str]:
        """Of what was computed, sorted: the parts of a page ask side by side."""
        return sorted(name for name, _ in self.asked)

    def ask(self, probe, *, reader="", meanwhile=None, **arguments):  # noqa: ARG002 - as the client is asked
        key = json.dumps([probe.name, wire.plain(arguments)])
        with self._one_at_a_time:
            if key not in self._kept:
                self.asked.append((probe.name, arguments))
                own = self.answers.get(probe.name)
                found = own(**arguments) if own else probe.call(wire.plain(arguments))
                self._kept[key] = client.Answer(probe.read(json.loads(wire.dumps(found))), 0.1)
        return self._kept[key]
