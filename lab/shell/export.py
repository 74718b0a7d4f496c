"""Charts as files: ``python -m lab.shell.export png|svg`` draws a specification on stdin to stdout.

It runs as a process of its own, so that drawing never holds the server up, and needs no browser.
"""

import csv
import io
import json
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from engine.system.errors import Unavailable

ROOT = Path(__file__).resolve().parent.parent.parent
WIDTH = 1120
TIMEOUT_S = 60


def downloads(
    name: str, chart: Callable[[], dict[str, Any]], table: Callable[[], Iterable[Sequence[object]]]
) -> None:
    """Three downloads, made when they are asked for, of what is measured by then.

    name: of the files, without their ends. chart: its specification. table: rows, the first one names.
    """
    import streamlit as st

    files: tuple[tuple[str, str, str, Callable[[], bytes]], ...] = (
        ("Picture (PNG)", "png", "image/png", lambda: picture(chart(), "png")),
        ("Picture (SVG)", "svg", "image/svg+xml", lambda: picture(chart(), "svg")),
        ("Numbers (CSV)", "csv", "text/csv", lambda: csv_text(table()).encode()),
    )
    with st.container(gap=None):
        for label, end, mime, made in files:
            st.download_button(label, made, f"{name}.{end}", mime, on_click="ignore", type="tertiary")


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV, quoted where they have to be and nothing else changed."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def picture(spec: dict[str, Any], form: Literal["png", "svg"]) -> bytes:
    """A chart in the light palette as PNG (twice the size in pixels) or SVG.

    Raises Unavailable: when it cannot be drawn, in time or at all; the message says why.
    """
    try:
        drawn = subprocess.run(
            [sys.executable, "-m", "lab.shell.export", form],
            input=json.dumps(spec, allow_nan=False).encode(),
            cwd=ROOT,
            capture_output=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(
            f"The picture was not drawn within {TIMEOUT_S} s: this machine is busy. Try again."
        ) from None
    if drawn.returncode:
        last = (drawn.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"])[-1]
        raise Unavailable(f"The picture could not be drawn: {last}")
    return drawn.stdout


def on_paper(spec: dict[str, Any]) -> dict[str, Any]:
    """The specification with what the browser's theme would have given it: palette, paper, type."""
    theme = tomllib.loads((ROOT / "lab" / ".streamlit" / "config.toml").read_text())["theme"]["light"]
    config = {
        **spec.get("config", {}),
        "background": theme["backgroundColor"],
        "font": "sans-serif",  # the one that vl-convert carries; it cannot read the theme's woff2 files
        "range": {"category": theme["chartCategoricalColors"]},
    }
    autosize = {"type": "fit", "contains": "padding"}
    size = (
        {} if {"hconcat", "vconcat"} & spec.keys() else {"width": WIDTH, "autosize": autosize}
    )  # parts have their own
    return {**size, **spec, "config": config, "padding": 16}


def main(form: str) -> None:
    """Draw what stdin holds."""
    import vl_convert

    spec = on_paper(json.load(sys.stdin))
    if form == "png":
        sys.stdout.buffer.write(vl_convert.vegalite_to_png(spec, scale=2))
    else:
        sys.stdout.write(vl_convert.vegalite_to_svg(spec))


if __name__ == "__main__":
    main(sys.argv[1])
