"""Live probes: what is measured on fixed weights while the page is open, by the warm worker."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from engine.chapter.definitions import Experiment
from engine.probes import client
from engine.probes.client import Answer, ProbeBug
from engine.probes.registry import Probe
from engine.system.errors import LabError
from lab import weights
from lab.settings import Settings
from lab.shell import frame
from lab.weights import Opened
from lab.words import MINUS, plain, quantity

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

R = TypeVar("R")

WIDTH = 544  # px
BUSY = "Measuring …"
BUG = "This probe failed in a way that nobody foresaw. The lab's log says where; please report it."


def beside(body: Callable[[], None]) -> None:
    """Draw a part of a page that measures: the page does not wait for it, its controls redraw it alone."""

    @st.fragment(parallel=True)
    def part() -> None:
        body()

    part()


def part(title: str, lead: str, body: Callable[[], None]) -> None:
    """A section in a fragment of its own. title, lead: as in ``frame.heading``."""

    def whole() -> None:
        frame.heading(title, lead)
        body()

    beside(whole)


@contextmanager
def section(title: str, lead: str, name: str, *, below: bool = False) -> Iterator[None]:
    """The head of a live section: its question, what is done, and a row for its settings and its button.

    name: of the row among the page's. below: as to ``frame.heading``.
    """
    frame.heading(title, lead, below=below)
    with st.container(horizontal=True, vertical_alignment="bottom", key=f"instruments-{name}"):
        yield


def look(
    title: str,
    lead: str,
    settings: Settings,
    name: str,
    probe: Probe[R],
    draw: Callable[[R, Opened], None],
    *,
    models: tuple[Experiment, Sequence[str]] | Callable[[], Opened] | None = None,
    controls: Callable[[], None] = lambda: None,
    arguments: Callable[[Opened], dict[str, Any] | None] = weights.needed,
    button: str = "",
    busy: str = BUSY,
    below: bool = False,
) -> None:
    """A whole section on one probe, in a fragment of its own.

    name: of its row and its switch among the page's. draw: what was found, and in which weights. models: an
    experiment and the variants of it that are opened, or what gives them. controls: draws its settings.
    arguments: of the probe, given the models that are there; None where it needs more. button: its label,
    where the probe waits for a press. busy: as to ``attempt``.
    """

    def body() -> None:
        key = settings.key(name)
        with section(title, lead, name, below=below):
            controls()
            share, opened = 1.0, Opened()
            if isinstance(models, tuple):
                opened = weights.chosen(key, *models)
                share = len(opened) / len(models[1])
            elif models:
                opened = models()
            given = arguments(opened)
            now = (given, opened)
            asked: Any = now
            if button and given is not None:
                asked = pressed(button, key, now, probe.seconds * share)
        if given is None or asked is None:
            return
        outdated(asked, now)
        if (found := attempt(st.empty(), probe, busy, **asked[0])) is not None:
            draw(found, asked[1])

    beside(body)


def ask(probe: Probe[R], meanwhile: Callable[[], object] = lambda: None, **arguments: Any) -> Answer[R]:
    """What a probe finds, for this reader.

    Raises LabError, ProbeBug: as ``client.ask``.
    """
    context = get_script_run_ctx()
    reader = context.session_id if context else ""
    return client.ask(probe, reader=reader, meanwhile=meanwhile, **arguments)


def attempt(place: "DeltaGenerator", probe: Probe[R], busy: str = BUSY, **arguments: Any) -> R | None:
    """What a probe finds; None where it cannot be had.

    place: of the status line, which reads ``busy`` as long as it takes, and then what is wrong, if anything.
    """

    def working() -> None:
        place.markdown(f":small[:primary[{busy}]]")  # a new request of the reader ends the run here

    if not probe.quick:
        working()
    try:
        answer = ask(probe, working, **arguments)
    except LabError as error:
        said = str(error)
    except ProbeBug:
        logging.getLogger("attention-lab").exception("The probe %s failed.", probe.name)
        said = BUG
    else:
        place.empty()
        return answer.value
    place.markdown(f":small[:red[{plain(said[:1].upper() + said[1:])}]]")
    return None


def pressed(label: str, key: str, asked: object, seconds: float, *, primary: bool = False) -> Any:
    """The button of a probe that takes its time: what was asked for when it was last pressed, None before.

    asked: what would be asked for now. seconds: what it takes, for people. Answers of the past stay until the
    button is pressed again; ``outdated`` says that they are.
    """
    state, name = st.session_state, f"{key}.asked"

    def press() -> None:
        state[name] = asked

    took = f"Takes about {max(1, round(seconds))} s."
    kind: Literal["primary", "secondary"] = "primary" if primary else "secondary"
    st.button(label, key=key, on_click=press, width=160, help=took, type=kind)
    return state.get(name)


def outdated(asked: object, now: object) -> None:
    """Say that an answer is of an earlier input, where it is."""
    if asked is not None and asked != now:
        st.markdown(":small[:orange[This is of the earlier input. Press the button to measure anew.]]")


def tiny(value: float) -> str:
    """A very small difference: "2.98e−08"."""
    return "0" if value == 0 else f"{value:.2e}".replace("-", MINUS)


def small(value: float) -> str:
    """A spread or a difference: "0.381", "5.96e−07"."""
    return quantity(value, 3) if value >= 0.001 else tiny(value)
