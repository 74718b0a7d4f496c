"""Helpers of every page: numbers as text, a reader's text as it is, settings in the URL."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.state.common import user_key_from_element_id

from lab.words import count, plain

T = TypeVar("T")

MAX_VALUE = 400  # characters of a setting in the URL


def one_of(name: str, options: Sequence[str]) -> Callable[[str], str]:
    """A parser of a setting that accepts these words only."""

    def parse(text: str) -> str:
        if text not in options:
            raise ValueError(f"{name} is {text!r}; allowed: {', '.join(options)}.")
        return text

    return parse


def whole(name: str, low: int, high: int) -> Callable[[str], int]:
    """A parser of a setting that accepts whole numbers in a range only."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
            raise ValueError(f"{name} is {text!r}; allowed: a whole number from {low:,} to {high:,}.")
        return int(text)

    return parse


def as_it_is(text: str) -> str:
    """A parser that accepts any text."""
    return text


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


class Settings:
    """A page's settings, each in the URL under its name and in the session for the way back.

    ``seed`` puts a setting's value where the widget of the same key finds it; the page then draws that
    widget. A bad value in the URL becomes one line of ``notices`` and the default; it stays in the URL,
    and named, until the reader chooses another. (``bind="query-params"`` drops a bad value without a word.)
    """

    def __init__(self, page: str, names: Sequence[str]) -> None:
        self.page = page
        self.names = tuple(names)
        self._seeds: dict[str, tuple[Any, Any, Any]] = {}
        self.notices = [
            f"{name} is no setting of this page; it has {', '.join(names)}. Nothing was changed."
            for name in st.query_params
            if name not in names
        ]

    def key(self, name: str) -> str:
        """The key of the setting's widget."""
        return f"{self.page}.{name}"

    def seed(self, name: str, parse: Callable[[str], T], default: T, write: Callable[[T], str] = str) -> T:
        """The setting's value now.

        parse: from the URL's text; raises ValueError with what is allowed. write: its inverse.
        """
        self._seeds[name] = parse, default, write
        state, key = st.session_state, self.key(name)
        given = st.query_params.get_all(name)
        from_url, notice = self._parsed(name, given, parse, default, write)
        if given != state.get(f"{key}:given") or key not in state:
            # The URL is new, or was changed by hand or by going back; else the widget is the newer.
            returning = not given and key not in state
            state[key] = state.get(f"{key}:kept", default) if returning else from_url
        hold(key, default)
        value: T = state[key]
        if value != from_url:
            notice = None
            if value is None:
                st.query_params.pop(name, None)
            else:
                st.query_params[name] = write(value)
        if notice:
            self.notices.append(notice)
        state[f"{key}:given"] = st.query_params.get_all(name)
        state[f"{key}:kept"] = value
        return value

    def again(self, *names: str) -> None:
        """Seed these once more: where a fragment begins, which runs without the page around it."""
        for name in names:
            self.seed(name, *self._seeds[name])

    def _parsed(
        self, name: str, given: list[str], parse: Callable[[str], T], default: T, write: Callable[[T], str]
    ) -> tuple[T, str | None]:
        if not given:
            return default, None
        used = "none" if default is None else write(default)
        if len(given) > 1:
            quoted = " and ".join(repr(value[:MAX_VALUE]) for value in given[:4])
            return (
                default,
                f"{name} is given {count(len(given))} times, {quoted}; allowed: once. Used: {used}.",
            )
        if len(given[0]) > MAX_VALUE:
            got = f"{len(given[0]):,} characters"
            return default, f"{name} has {got}; allowed: at most {MAX_VALUE}. Used: {used}."
        try:
            return parse(given[0]), None
        except ValueError as error:
            return default, f"{error} Used: {used}."

    def show_notices(self) -> None:
        """What was wrong in the URL, one line each, above the settings."""
        for notice in self.notices:
            st.markdown(f":orange[{plain(notice)}]")


def user() -> str:
    """Whom a run belongs to, for fair turns among those who share this lab."""
    address = st.context.ip_address  # None on this machine itself
    return address if isinstance(address, str) and address else "local"
