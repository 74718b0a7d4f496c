"""What stands around every page's instruments: its head, its sources, the way on."""

import ast
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache

import streamlit as st
from streamlit.errors import StreamlitPageNotFoundError

from engine.chapter import report
from engine.chapter.definitions import Experiment
from engine.chapter.variant import Variant
from engine.system import paths
from engine.system.errors import InvalidInput
from lab.settings import Settings
from lab.shell import watch
from lab.shell.chapter import Section, neighbours
from lab.shell.styles import style
from lab.words import plain

MEASURE = 720  # px: the length of a line of prose


def header(section: Section, question: str, lead: str, settings: Settings | None = None) -> None:
    """Where the page stands in the chapter, its question, and at most two lines of lead.

    settings: of the page; below stands what was wrong with them in the URL.
    """
    with st.container(key="head", gap="xsmall"):
        st.caption(section.caption)
        st.title(question, anchor=False)
        st.markdown(lead, width=MEASURE)
    if settings:
        settings.keep_place()


def heading(title: str, lead: str, *, below: bool = False) -> None:
    """The head of a section: its question, and what is done to answer it.

    below: whether it is a part of the one before.
    """
    (st.subheader if below else st.header)(title, anchor=False)
    st.markdown(lead, width=MEASURE)


def footer(section: Section, settings: Settings | None = None) -> None:
    """The end of a page: what can be said once all of it is drawn, and links to its neighbours.

    settings: as given to ``header``.
    """
    if settings:
        settings.show_notices()
        watch.together(settings.watched)
    before, after = neighbours(section)
    if before or after:
        with st.container(horizontal=True, horizontal_alignment="distribute"):
            for neighbour, arrow in ((before, "← {}"), (after, "{} →")):
                if neighbour:
                    link(neighbour, arrow.format(neighbour.title))


def link(section: Section, label: str) -> None:
    """A link to another page; none where a page runs alone, as tests have it, and there are no others."""
    with suppress(StreamlitPageNotFoundError):
        st.page_link(section.path, label=label)


def dot(variant_id: str) -> str:
    """A variant's colour as Markdown: a ring for the reader's own."""
    slot = style(variant_id).slot
    if slot == "ink":
        return "●"
    return f":{'blue' if slot == 'sky' else slot}[{'○' if slot == 'sky' else '●'}]"


def sources(experiment: Experiment, label: str, models: Sequence[Variant] = ()) -> None:
    """Each rung in an expander: what it changes, and the class that does it.

    What the chapter claims of it stands there as the chapter's, with what was measured. models: which of the
    experiment's; by default all.
    """
    with st.expander(label):
        for rung in models or experiment.models:
            said = [f"{dot(rung.id)} **{plain(rung.title)}**, {change(rung)}", rung.about]
            if rung.claim:
                said += [
                    f"The chapter: {rung.claim}",
                    f"Measured here: {report.measured(experiment, rung.id)}",
                ]
            st.markdown("  \n".join(filter(None, said)))
            st.code(class_source(rung.source), language="python")


def change(rung: Variant) -> str:
    """The one field that a rung changes, as Markdown."""
    if rung.base is None:
        return "where a table starts" if rung.change else "where the ladder starts"
    parent = f"which is *{plain(rung.base.title)}*"
    for field, value in rung.change.items():
        return f"{parent} with `{field} = {value!r}`"
    return f"{parent}, as this table calls it"


def class_source(name: str) -> str:
    """The text of a class in ``engine/models``, by "module.Class"."""
    module, _, wanted = name.partition(".")
    return engine_source(f"models/{module}.py", wanted)


@lru_cache(maxsize=64)
def engine_source(file: str, name: str) -> str:
    """The text of a class or function of a file in ``engine``, read without importing torch."""
    text = (paths.ROOT / "engine" / file).read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name:
            return ast.get_source_segment(text, node) or ""
    raise InvalidInput(f"no class or function {name!r} in engine/{file}")
