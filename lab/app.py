"""The app's shell: page settings, navigation and nothing else."""

import sys
from pathlib import Path

import streamlit as st

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # Streamlit puts this file's own folder there, not the one above it
    sys.path.insert(0, str(ROOT))

from lab.shell import theme  # noqa: E402
from lab.shell.chapter import PAGES, SECTIONS  # noqa: E402

theme.apply()
menus = {"": [st.Page(PAGES / "home.py", title="Attention Lab", default=True)]}
for section in SECTIONS:
    if section.built:
        menus.setdefault(section.group, []).append(st.Page(section.path, title=section.title))
menus.setdefault("Workbench", []).append(st.Page(PAGES / "runs.py", title="Runs"))
st.navigation(menus, position="top").run()
