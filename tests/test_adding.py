"""What is added in one place is there everywhere: a variant, an experiment, a page, in a copy of the lab."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from engine.system import paths

# What every program begins with: a lab on this machine's processor, where nothing is measured yet.
BEGIN = """
import json, sys
from streamlit.testing.v1 import AppTest
from engine.system import device
device.describe = lambda: device.Device("cpu", "CPU, 2 cores", 0, "2.13.0", False)
text = sys.argv[1]

def opened(path, **query):
    page = AppTest.from_file(path, default_timeout=60)
    for name, value in query.items():
        page.query_params[name] = value
    page.run()
    assert not page.exception, page.exception
    return page
"""


# What an experiment is.
DEPTH = """
        Experiment(
            id="depth",
            title="Depth",
            question="Do more blocks help?",
            models=(v.BLOCK, v.TWO_BLOCKS),
            budgets=_BUDGETS,
            chapter={(v.BLOCK.id, PERPLEXITY): printed(38.07, where="The block, the full ladder")},
            shows="that the loss falls",
            hides="which is better in the end",
        ),"""


@pytest.fixture
def copy(tmp_path):
    """A copy of the lab; what is shipped with it is only linked to."""
    folder = tmp_path / "copy"
    for name in ("engine", "lab", "pages", "tests"):
        shutil.copytree(paths.ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("data", "checkpoints", "pyproject.toml"):
        (folder / name).symlink_to(paths.ROOT / name)
    return folder


def insert(path, *places, text):
    """Write a text behind the last of some places, each looked for behind the one before."""
    source, at = path.read_text(encoding="utf-8"), 0
    for place in places:
        at = source.index(place, at) + len(place)
    path.write_text(source[:at] + text + source[at:], encoding="utf-8")


def python(copy, *arguments):
    """What a Python prints in the copy."""
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=copy, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=200,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def run(copy, program, corpus_id):
    """What a program prints last, as JSON, run in the copy."""
    return json.loads(python(copy, "-c", BEGIN + program, corpus_id).splitlines()[-1])


def contract(copy, page):
    """How many tests of the contract a page of the copy passes; it must pass all that there are."""
    said = python(copy, "-m", "pytest", "-p", "no:cacheprovider", "tests/test_page_contract.py", "-k", page)
    return int(re.search(r"(\d+) passed", said)[1])


def test_a_variant_is_one_entry_and_its_colour(copy, tiny_corpus):
    """In each table whose page says what there is to notice about models that it names."""
    tables = {"averages": "averages", "mask": "mask", "query-key-value": "qkv", "norm-placement": "norm"}
    for known in tables:
        file = "norm_experiments.py" if known == "norm-placement" else "experiments.py"
        insert(
            copy / "engine" / "chapter" / file, f'id="{known}"', "models=(",
            text='v.BLOCK.then("eight-heads", {"n_head": 8}, title="eight heads", about="More answers."), ',
        )  # fmt: skip
    insert(copy / "lab" / "shell" / "styles.py", "_STYLES = {", text='"eight-heads": Style("violet"),')
    program = f"""
from engine.runs import launch
from engine.runs.store import Store

shown, store = {{}}, Store()
for known, name in {tables!r}.items():
    sweep = store.submit(launch.specs(known, "quick", (0,), text))
    for run in store.runs(sweep=sweep):
        store.advance(run.id, "queued", "done", measured={{"validation_perplexity": 60.0 + run.id}})
    page = opened(f"pages/{{name}}.py", text=text)
    said = [element.value for element in page.markdown]
    drawn = [str(table.proto.arrow_data.styler.display_values) for table in page.table]
    shown[name] = [
        any(value.startswith(":violet[●] **eight heads**, which is *") for value in said),
        any("eight heads" in table and ":violet" in table for table in drawn),
        any("What to notice" in header.value for header in page.subheader),
    ]
print(json.dumps(shown))
"""
    shown = run(copy, program, tiny_corpus)
    assert shown.pop("norm")[1:] == [True, True], "its page prints the code of two of its models"
    assert shown == {page: [True, True, True] for page in ("averages", "mask", "qkv")}
    assert contract(copy, "averages") == 6


def test_an_experiment_is_one_definition(copy, tiny_corpus):
    insert(
        copy / "engine" / "chapter" / "experiments.py", "EXPERIMENTS: dict[", "for known in (",
        text=DEPTH,
    )  # fmt: skip
    program = """
from contextlib import redirect_stdout
from io import StringIO
from engine import __main__
from engine.runs import launch
from engine.runs.store import Store

def printed(*words):
    with redirect_stdout(StringIO()) as out:
        assert __main__.main(words) == 0
    return out.getvalue()

made = launch.specs("depth", "chapter", (0,), text)
Store().submit(made)
page = opened("pages/runs.py", experiment="depth")
print(json.dumps({
    "listed": "depth: Do more blocks help?" in printed("list"),
    "shown": [row["chapter"] for row in json.loads(printed("show", "depth", "--json"))["rows"]],
    "runs": [[spec.variant, spec.budget.steps, spec.config.n_layer] for spec in made],
    "filtered": ":orange[experiment" not in " ".join(element.value for element in page.markdown),
}))
"""
    assert run(copy, program, tiny_corpus) == {
        "listed": True,
        "shown": [38.07, None],
        "runs": [["block", 3000, 1], ["two-blocks", 3000, 2]],
        "filtered": True,
    }


def test_a_page_is_a_script_and_a_line_of_the_contents(copy, tiny_corpus):
    (copy / "pages" / "depth.py").write_text(
        """from engine.chapter.experiments import EXPERIMENTS
from lab import bench
from lab.settings import Settings
from lab.shell import frame
from lab.shell.chapter import section

SECTION, settings, depth = section("depth.py"), Settings("depth"), EXPERIMENTS["depth"]
frame.header(SECTION, SECTION.question, "One block, or two.", settings)
bench.train(depth, settings, questions=bench.best_and_worst(depth))
frame.sources(depth, "The code of both")
frame.footer(SECTION, settings)
"""
    )
    definitions = copy / "engine" / "chapter" / "experiments.py"
    insert(definitions, "EXPERIMENTS: dict[", "for known in (", text=DEPTH)
    insert(
        copy / "lab" / "shell" / "chapter.py", "_PLAN: ", "= {",
        text='"Depth": (("Depth", "Do more blocks help?", "depth.py", ("depth",)),),',
    )  # fmt: skip
    program = """
page, home = opened("pages/depth.py"), opened("lab/app.py")
print(json.dumps({
    "title": page.title[0].value,
    "caption": page.caption[0].value,
    "home": any("Do more blocks help" in element.value.replace(chr(92), "") for element in home.markdown),
    "torch": "torch" in sys.modules,
}))
"""
    assert run(copy, program, tiny_corpus) == {
        "title": "Do more blocks help?",
        "caption": "1 of 15 · Depth",
        "home": True,
        "torch": False,
    }
    assert contract(copy, "depth") == 5
