"""What every page looks like: style sheet and glyph. Colours live in ``.streamlit/config.toml``."""

from pathlib import Path

import streamlit as st

ASSETS = Path(__file__).resolve().parent.parent / "assets"
GLYPH = ASSETS / "glyph.svg"
STYLE = ASSETS / "style.css"

# Without an About entry the minimal toolbar has no menu, and so no way to choose light or dark.
ABOUT = "**Attention Lab**: one textbook chapter, measured on your own machine."


def apply() -> None:
    """Set the page up. The icon is a local picture: a Material icon would be fetched from a CDN."""
    st.set_page_config(
        page_title="Attention Lab", page_icon=GLYPH, layout="wide", menu_items={"about": ABOUT}
    )
    st.logo(GLYPH, size="small")
    st.html(STYLE)
