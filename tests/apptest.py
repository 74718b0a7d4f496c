"""Pages under Streamlit's AppTest: open one at a URL, run it again, read what it says."""

from functools import cache
from typing import Any

import pyarrow
from altair.vegalite.v6.schema import core
from jsonschema import Draft7Validator
from streamlit.testing.v1 import AppTest

from engine.system import paths


def open_page(name, **query):
    """``pages/NAME.py`` at a URL with these parameters; a list gives one several times."""
    page = AppTest.from_file(str(paths.ROOT / "pages" / f"{name}.py"), default_timeout=60)
    for parameter, value in query.items():
        page.query_params[parameter] = value
    return rerun(page)


def open_home():
    """The app's first page, as it is without a file named."""
    return rerun(AppTest.from_file(str(paths.ROOT / "lab" / "app.py"), default_timeout=60))


def rerun(page):
    """The page once more; nothing a reader does may end in an exception."""
    page.run()
    assert not page.exception, [(one.message, one.stack_trace[-3:]) for one in page.exception]
    return page


def widget(page, key):
    """The widget of this key, of whatever kind."""
    return next(node for node in nodes(page) if getattr(node, "key", None) == key)


def press(page, key):
    """The page after a click on this button."""
    page.button(key=key).click()
    return rerun(page)


def choose(page, key, value):
    """The page after a widget was set to a value."""
    widget(page, key).set_value(value)
    return rerun(page)


def keys(page):
    """Of all its buttons."""
    return {button.key for button in page.button}


def link(page, name):
    """What the URL says of a setting; a parameter that the page wrote is a list."""
    value = page.query_params[name]
    return value if isinstance(value, str) else value[-1]


def said(page):
    """Everything that the page says in words, without escapes and non-breaking spaces."""
    return _read("\n".join(element.value for element in [*page.markdown, *page.caption]))


def _read(text):
    return text.replace("\\", "").replace("\u00a0", " ")


def nodes(page):
    """Every element of the page, in order."""

    def walk(node):
        yield node
        for child in getattr(node, "children", {}).values():
            yield from walk(child)

    return walk(page._tree)


def charts(page):
    """Every chart's datasets, rows by dataset's name, in the order of the page."""
    return [
        {
            one.name: pyarrow.ipc.open_stream(one.data.data).read_all().to_pylist()
            for one in node.proto.datasets
        }
        for node in nodes(page)
        if node.type == "vega_lite_chart"
    ]


def chart_with(page, dataset, field):
    """The datasets of the first chart in which rows of this one have that field."""
    return next(data for data in charts(page) if any(field in row for row in data.get(dataset, [])))


def means(data, field):
    """The fields of a chart's mean curves: one's values by the curve's name."""
    found: dict[str, list[Any]] = {}
    for row in data["curves"]:
        if row["kind"] == "mean":
            found.setdefault(row["name"], []).append(row[field])
    return found


@cache
def _layered():
    """What Vega-Lite says of a chart in layers. (Reading one as Altair's objects takes six times as long.)"""
    return Draft7Validator({**core.load_schema(), "$ref": "#/definitions/TopLevelLayerSpec"})


def sound(spec):
    """Whether a chart is sound Vega-Lite."""
    return _layered().is_valid({key: spec[key] for key in ("layer", "config", "height")})


def tables(page):
    """Every table's rows as they are shown, without escapes."""
    shown = (
        pyarrow.ipc.open_stream(table.proto.arrow_data.styler.display_values).read_all().to_pylist()
        for table in page.table
    )
    return [[{name: _read(cell) for name, cell in row.items()} for row in rows] for rows in shown]


def cells(page, first, place=0):
    """The rows of the table whose first column's name begins so. place: which of them."""
    return [rows for rows in tables(page) if next(iter(rows[0])).startswith(first)][place]


def lines(page, first, place=0):
    """The same rows by the words of their first cells, without the coloured mark before them."""
    rows = cells(page, first, place)
    return {next(iter(row.values())).rpartition("] ")[2].removeprefix("● "): row for row in rows}
