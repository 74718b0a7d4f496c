"""Pages under Streamlit's AppTest: open one at a URL, run it again, read what it says."""

import altair as alt
import pyarrow
from streamlit.testing.v1 import AppTest

from engine.system import paths


def open_page(name, **query):
    """``pages/NAME.py`` at a URL with these parameters; a list gives one several times."""
    page = AppTest.from_file(str(paths.ROOT / "pages" / f"{name}.py"), default_timeout=60)
    for parameter, value in query.items():
        page.query_params[parameter] = value
    return rerun(page)


def rerun(page):
    """The page once more; nothing a reader does may end in an exception."""
    page.run()
    assert not page.exception, [(one.message, one.stack_trace[-3:]) for one in page.exception]
    return page


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


def sound(spec):
    """The layers of a chart as Altair reads them; an error where they are no sound Vega-Lite."""
    return alt.LayerChart.from_dict({key: spec[key] for key in ("layer", "config", "height")}, validate=True)


def cells(page, first, place=0):
    """The rows of the table whose first column's name begins so, without escapes. place: which of them."""
    tables = [
        pyarrow.ipc.open_stream(table.proto.arrow_data.styler.display_values).read_all().to_pylist()
        for table in page.table
    ]
    rows = [rows for rows in tables if next(iter(rows[0])).startswith(first)][place]
    return [{name: _read(cell) for name, cell in row.items()} for row in rows]


def lines(page, first, place=0):
    """The same rows by the words of their first cells, without the coloured mark before them."""
    rows = cells(page, first, place)
    return {next(iter(row.values())).rpartition("] ")[2].removeprefix("● "): row for row in rows}


def torch_failed_seconds(python, name, text, *changes):
    """Open a page in a process of its own and run it again after each change, a line of Python on ``page``.

    Returns whether torch was loaded, whether the page failed, and the quickest redraw in seconds.
    """
    turns = "".join(
        f"{change}\nbegan = time.perf_counter()\npage.run()\ntimes.append(time.perf_counter() - began)\n"
        for change in changes
    )
    ended = python(
        "-c",
        "import sys, time\n"
        "from engine.system import device\n"
        "device.describe = lambda: device.Device('cpu', 'CPU, 2 cores', 0, '2.13.0', False)\n"
        "from streamlit.testing.v1 import AppTest\n"
        f"page = AppTest.from_file('pages/{name}.py', default_timeout=60)\n"
        f"page.query_params['text'] = {text!r}\n"
        f"page.run()\ntimes = []\n{turns}"
        "print('torch' in sys.modules, bool(page.exception), min(times))\n",
    )
    torch_loaded, failed, seconds = ended.stdout.split()
    return torch_loaded == "True", failed == "True", float(seconds)
