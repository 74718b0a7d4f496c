"""A page's settings, each declared once: name, label, options, default, place in the URL, widget."""

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, Literal, TypeVar

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.state.common import user_key_from_element_id

from engine.system.errors import InvalidInput, LabError
from engine.system.numbers import whole_number
from lab.shell.watch import Watched
from lab.words import count, plain

T = TypeVar("T")
D = TypeVar("D")

MAX_VALUE = 400  # characters of a setting in the URL
Widget = Callable[..., object]
Parse = Callable[[str], T]  # of the URL's text
Write = Callable[[Any], str]  # a value as the URL has it
WidgetName = Literal["buttons", "pills", "list", "slider"]


def one_of(name: str, options: Sequence[str]) -> Callable[[str], str]:
    """A parser of a setting that accepts these words only."""

    def parse(text: str) -> str:
        if text not in options:
            raise InvalidInput(f"{name} is {text!r}; allowed: {', '.join(options)}.")
        return text

    return parse


def whole(name: str, low: int, high: int) -> Callable[[str], int]:
    """A parser of a setting that accepts whole numbers in a range only."""

    def parse(text: str) -> int:
        number = whole_number(text, low, high)
        if number is None:
            raise InvalidInput(f"{name} is {text!r}; allowed: a whole number from {low:,} to {high:,}.")
        return number

    return parse


def hold(key: str, default: object) -> None:
    """The default of a widget whose value lives in the session, and the value itself until it is drawn.

    Streamlit tells the browser such a value once. If the page runs again before the browser has drawn the
    widget (a press on a slow machine), the widget comes up empty, and the next press sends that as the
    reader's choice. So a value is told anew in each run for which the browser did not send one.
    """
    state = st.session_state
    if key not in state:
        state[key] = default
    elif key not in _sent():
        state[key] = state[key]


def _sent() -> set[str | None]:
    """The keys of the widgets that the browser sent a value for with this run."""
    context = get_script_run_ctx()
    found = context.session_state.get_widget_states() if context else []
    return {user_key_from_element_id(widget.id) for widget in found}


class Setting(Generic[T]):
    """One setting: its value now, and the widget that changes it."""

    def __init__(
        self, settings: "Settings", name: str, label: str = "", widget: Widget | None = None
    ) -> None:
        """widget: draws it, given its label and key; it takes what ``draw`` is given, a width for example."""
        self.key = settings.key(name)
        self.label = label
        self._again = partial(settings.again, name)
        self._widget = widget

    @property
    def value(self) -> T:
        """As the widget or the URL has it."""
        if self.key not in st.session_state:  # in a fragment that had not drawn it the last time
            self._again()
        found: T = st.session_state[self.key]
        return found

    @value.setter
    def value(self, value: T) -> None:
        """Set it: before its widget is drawn, or in a callback."""
        st.session_state[self.key] = value

    def draw(self, **how: Any) -> None:
        """Put the widget where this is called, a fragment too. how: passed on to it."""
        assert self._widget is not None, f"{self.key} has no widget"
        self._again()  # a fragment runs without the page around it
        self._widget(how.pop("label", self.label), key=self.key, **how)


class Settings:
    """A page's settings, each in the URL under its name and in the session for the way back.

    A bad value in the URL becomes one of the ``notices``, by name, and the default; it stays in the URL,
    and named, until the reader chooses another. (``bind="query-params"`` drops a bad value without a word.)

    watched: what the page is drawn of and may change by itself; ``frame.footer`` looks after it.
    """

    def __init__(self, page: str, names: Sequence[str] = ()) -> None:
        """names: of settings that are not declared, though the page has them."""
        self.page = page
        self.names = list(names)
        self.notices: dict[str, str] = {}
        self.watched: list[Watched] = []
        self._place: Any = None
        self._seeds: dict[str, tuple[Any, Any, Any]] = {}

    def key(self, name: str) -> str:
        """The key of a widget of this page."""
        return f"{self.page}.{name}"

    def choice(
        self,
        name: str,
        label: str,
        options: Sequence[T] | Mapping[T, str],
        default: D,
        *,
        shown: Callable[[T], str] | None = None,
        written: Write = str,
        widget: WidgetName = "buttons",
        parse: Parse[T] | None = None,
    ) -> Setting[T | D]:
        """One of several values; the default again where it is no longer among the options.

        options: a mapping gives their labels. default: None for nothing chosen yet. shown: a value's label.
        written: a value in the URL. parse: of values beyond the options, which only a URL can choose; such a
        one is offered beside them.
        """
        known = {written(option): option for option in options}
        check = one_of(name, tuple(known))
        labels = options.__getitem__ if isinstance(options, Mapping) else None
        value = self.seed(name, parse or (lambda text: known[check(text)]), default, written)
        key, more, offered = self.key(name), dict[str, Any](), list(options)
        if value not in (*options, default):
            if parse:
                offered.append(value)  # type: ignore[arg-type]
            else:
                st.session_state[key] = default
                st.query_params[name] = written(default)
        if widget in ("buttons", "pills"):
            more["required"] = default is not None
        draw: dict[WidgetName, Widget] = {
            "buttons": st.segmented_control,
            "pills": st.pills,
            "list": st.selectbox,
            "slider": st.select_slider,
        }

        def drawn(label: str, **how: Any) -> None:
            draw[widget](label, offered, format_func=shown or labels or str, **more, **how)

        return Setting(self, name, label, drawn)

    def several(
        self, name: str, label: str, options: Mapping[str, str], default: Sequence[str]
    ) -> Setting[list[str]]:
        """Some of several words, joined by commas in the URL, in the order of the options."""

        def parse(text: str) -> list[str]:
            chosen = text.split(",") if text else []
            if wrong := [word for word in chosen if word not in options]:
                allowed = ", ".join(options)
                raise InvalidInput(f"{name} has {wrong[0]!r}; allowed: {allowed}, separated by commas.")
            return [word for word in options if word in chosen]

        def drawn(label: str, **how: Any) -> None:
            st.segmented_control(
                label, list(options), selection_mode="multi", format_func=options.__getitem__, **how
            )

        self.seed(name, parse, list(default), ",".join)
        return Setting(self, name, label, drawn)

    def text(
        self, name: str, label: str, default: str, *, max_chars: int = MAX_VALUE, lines: int = 1
    ) -> Setting[str]:
        """Any text. lines: of the box; more than one make it an area."""
        self.seed(name, str, default)
        box: Widget = st.text_input if lines == 1 else st.text_area

        def drawn(label: str, **how: Any) -> None:
            box(label, max_chars=max_chars, **({} if lines == 1 else {"height": 28 * lines + 24}), **how)

        return Setting(self, name, label, drawn)

    def whole(
        self, name: str, label: str, low: int, high: int, default: D, *, slider: bool = False
    ) -> Setting[int | D]:
        """A whole number in a range. default: None for none given. slider: instead of a box."""
        self.seed(name, whole(name, low, high), default)

        def drawn(label: str, **how: Any) -> None:
            if slider:
                st.slider(label, low, high, **how)
            else:
                empty = {"value": None} if default is None else {}
                st.number_input(label, low, high, **{"step": 1, **empty, **how})

        return Setting(self, name, label, drawn)

    def random(self, name: str, label: str) -> Setting[int]:
        """A seed that a button draws anew."""

        def drawn(label: str, key: str, width: int = 160) -> None:
            state = st.session_state
            st.button(label, on_click=lambda: state.update({key: random.randrange(10_000)}), width=width)

        self.seed(name, whole(name, 0, 9_999), 0)
        return Setting(self, name, label, drawn)

    def value(
        self,
        name: str,
        parse: Parse[T],
        default: D,
        written: Write = str,
        widget: Widget | None = None,
    ) -> Setting[T | D]:
        """A setting whose options, if any, are known where it is drawn. parse: as in ``seed``."""
        self.seed(name, parse, default, written)
        return Setting(self, name, widget=widget)

    def seed(self, name: str, parse: Parse[T], default: D, write: Write = str) -> T | D:
        """The setting's value now, put where the widget of its key finds it.

        parse: from the URL's text; raises InvalidInput with what is allowed. write: its inverse.
        """
        if name not in self.names:
            self.names.append(name)
        self._seeds[name] = parse, default, write
        state, key = st.session_state, self.key(name)
        given = st.query_params.get_all(name)
        from_url, notice = self._parsed(name, given, parse, default, write)
        if given != state.get(f"{key}:given") or key not in state:
            # The URL is new, or was changed by hand or by going back; else the widget is the newer.
            returning = not given and key not in state
            state[key] = state.get(f"{key}:kept", default) if returning else from_url
        hold(key, default)
        value: T | D = state[key]
        if value != from_url:
            notice = None
            if value is None:
                st.query_params.pop(name, None)
            else:
                st.query_params[name] = write(value)
        if notice:
            self.notices[name] = notice
        state[f"{key}:given"] = st.query_params.get_all(name)
        state[f"{key}:kept"] = value
        return value

    def again(self, *names: str) -> None:
        """Seed these once more: where a fragment begins, which runs without the page around it."""
        for name in names:
            self.seed(name, *self._seeds[name])

    def _parsed(
        self, name: str, given: list[str], parse: Callable[[str], T], default: D, write: Callable[[Any], str]
    ) -> tuple[T | D, str | None]:
        if not given:
            return default, None
        try:
            if len(given) > 1:
                quoted = " and ".join(repr(value[:MAX_VALUE]) for value in given[:4])
                raise InvalidInput(f"{name} is given {count(len(given))} times, {quoted}; allowed: once.")
            if (length := len(given[0])) > MAX_VALUE:
                raise InvalidInput(f"{name} has {length:,} characters; allowed: at most {MAX_VALUE}.")
            return parse(given[0]), None
        except LabError as error:
            used = "none" if default is None else write(default)
            return default, f"{error} Used: {used}."

    def keep_place(self) -> None:
        """Where ``show_notices`` will write: a page's settings are declared all over it."""
        self._place = st.container()

    def show_notices(self) -> None:
        """What was wrong in the URL, one line each; once every setting of the page is declared."""
        unknown = [
            f"{name} is no setting of this page; it has {', '.join(self.names)}. Nothing was changed."
            for name in st.query_params
            if name not in self.names
        ]
        place = self._place or st.container()
        for notice in [*unknown, *self.notices.values()]:
            place.markdown(f":orange[{plain(notice)}]")
