"""Who may import whom (DESIGN, section 1): pages -> lab -> engine, and torch only where it computes."""

import ast
import importlib.metadata
import sys
from functools import cache

import pytest

from engine.system import paths

TOP = ("pages", "lab", "engine")
SCREEN = {"streamlit", "altair", "plotly", "vl_convert"}
TORCH = {"torch", "safetensors.torch"}

# Each may import what stands before it, never what stands after; a longer name beats a shorter one.
LAYERS = (
    ("engine.system",),
    ("engine.memory_wall",),
    ("engine.models.config", "engine.models.ledger"),
    ("engine.models.positions", "engine.models.linear"),
    ("engine.models.mixers",),
    ("engine.models.block",),
    ("engine.models.transformer",),
    ("engine.data",),
    ("engine.chapter.budget", "engine.chapter.variant"),
    ("engine.chapter.variants", "engine.chapter.language_variants", "engine.chapter.definitions"),
    (
        "engine.chapter.language_experiments",
        "engine.chapter.norm_experiments",
        "engine.chapter.scaling_experiments",
    ),
    ("engine.chapter.experiments",),
    ("engine.chapter",),
    ("engine.training.checkpoint", "engine.training.evaluation", "engine.training.generation"),
    ("engine.training",),
    ("engine.circuits",),
    ("engine.runs.spec",),
    ("engine.probes", "engine.sandbox"),
    ("engine.runs.store", "engine.runs.launch", "engine.runs.sources"),
    ("engine.runs",),
    ("engine.benchmarks",),
    ("engine",),  # commands and __main__
    ("lab.words", "lab.shell.watch", "lab.settings"),
    ("lab.shell",),
    ("lab.charts", "lab.probes", "lab.weights", "lab.bench"),
    ("lab.runs",),
    ("lab.sections",),
    ("lab",),  # app, check and __main__
    ("pages",),
)

# What computes may load torch. Nothing else of the engine does, since Home, Runs and the settings of a page
# read it; of what computes, those that a page reads and a probe's process waiting do not either.
COMPUTES = (
    *("engine.models", "engine.training", "engine.circuits", "engine.probes", "engine.benchmarks"),
    *(f"engine.memory_wall.{part}" for part in ("attention", "live_bytes", "meters", "predict", "worker")),
    *("engine.sandbox.child", "engine.runs.sources"),
)
# What loads torch within a function, when it is called.
ON_CALL = {
    *("engine.system.device", "engine.probes.worker", "engine.probes.zoo", "engine.__main__"),
    *(f"engine.runs.{part}" for part in ("estimates", "reference_writer", "trainer")),
}


def _sources():
    found = {}
    for folder in TOP:
        for path in sorted((paths.ROOT / folder).rglob("*.py")):
            parts = path.relative_to(paths.ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


SOURCES = _sources()


def _within(module, *names):
    return any(module == name or module.startswith(f"{name}.") for name in names)


@cache
def imports(module, *, at_once=False):
    """Modules that a module names in its imports; ``at_once``: only those that importing it runs."""
    found, todo = set(), [ast.parse(SOURCES[module].read_text("utf-8"))]
    while todo:
        for node in ast.iter_child_nodes(todo.pop()):
            if at_once and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                continue
            if at_once and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                continue
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{module}: a relative import hides where it goes"
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= {n if n in SOURCES or n in TORCH else str(node.module) for n in names}
            todo.append(node)
    return frozenset(found)


def roots(module, **how):
    return {name.partition(".")[0] for name in imports(module, **how)}


def ours(module, **how):
    return {name for name in imports(module, **how) if name in SOURCES}


def layer(module):
    places = [(len(name), n) for n, names in enumerate(LAYERS) for name in names if _within(module, name)]
    return max(places)[1]


@cache
def loaded_by(module):
    """Every module that importing one runs, ours and others, found by following our own."""
    seen, todo = set[str](), [module]
    while todo:
        for name in imports(todo.pop(), at_once=True) - seen:
            seen.add(name)
            if name in SOURCES:
                todo.append(name)
    return frozenset(seen)


def test_the_sources_are_found():
    assert {"engine.models.mixers", "engine.runs.store", "lab.app", "pages.averages"} <= set(SOURCES)
    assert "torch" in imports("engine.runs.reference_writer")
    assert "torch" not in imports("engine.runs.reference_writer", at_once=True)
    assert "torch" in loaded_by("engine.training.loop")


@pytest.mark.parametrize("module", SOURCES)
def test_nothing_imports_what_stands_above_it(module):
    above = {name for name in ours(module) if layer(name) > layer(module)}
    assert not above


@pytest.mark.parametrize("module", [m for m in SOURCES if _within(m, "engine")])
def test_the_engine_knows_no_screen(module):
    assert not roots(module) & (SCREEN | {"lab", "pages"})


@pytest.mark.parametrize("module", [m for m in SOURCES if _within(m, "lab") or _within(m, "pages")])
def test_no_line_of_the_app_imports_torch_and_no_page_loads_it(module):
    assert "torch" not in roots(module)
    assert not imports(module) & TORCH
    assert not any(_within(name, "torch") or name in TORCH for name in loaded_by(module))


SHARED = {"engine.system.errors", "engine.system.numbers"}  # how any of the engine refuses a value


@pytest.mark.parametrize("module", [m for m in SOURCES if _within(m, "engine.models")])
def test_models_import_only_torch_and_models(module):
    allowed = {"torch"} if module != "engine.models.config" else set[str]()
    outside = roots(module) - {"engine"} - set(sys.stdlib_module_names)
    assert outside <= allowed
    assert all(_within(name, "engine.models") for name in ours(module) - SHARED)


READ = {"engine.probes.worker"}.union(*(loaded_by(m) for m in SOURCES if _within(m, "lab", "pages")))
LIGHT = [m for m in SOURCES if _within(m, "engine") and (m in READ or not _within(m, *COMPUTES))]


@pytest.mark.parametrize("module", LIGHT)
def test_what_pages_read_does_not_load_torch(module):
    assert not any(_within(name, "torch") or name in TORCH for name in loaded_by(module))
    assert ("torch" in roots(module)) == (module in ON_CALL)


def test_modules_do_not_import_each_other_in_a_circle():
    for module in SOURCES:
        assert module not in loaded_by(module)


def test_no_file_of_the_app_bears_the_name_of_a_module_it_would_hide():
    # `streamlit run lab/server.py` puts lab/ first on sys.path
    taken = set(sys.stdlib_module_names) | set(importlib.metadata.packages_distributions())
    taken -= {"lab", "pages", "engine"}
    names = {path.stem for path in (paths.ROOT / "lab").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert not (names - {"__init__", "__main__"}) & taken


def test_importing_them_all_leaves_torch_out_of_the_process(python):
    # What reading cannot see: a third party that imports torch by itself.
    names = ", ".join(LIGHT)
    ended = python("-c", f"import {names}, sys; print(sorted(set(sys.modules) & {{'torch', 'streamlit'}}))")
    assert ended.stderr == ""
    assert ended.stdout == "[]\n"
