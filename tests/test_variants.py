"""Variants: each is its parent plus one changed field, and its source is short enough to print."""

import ast
import importlib
import inspect
import re
import textwrap
from dataclasses import fields, replace

import pytest

from engine.chapter import experiments, language_variants, variants
from engine.chapter.experiments import EXPERIMENTS, VARIANTS
from engine.chapter.variant import Variant
from engine.models import block, mixers, positions
from engine.models.config import ModelConfig

MAX_SOURCE_LINES = 25
# One model under another table's name, or on another budget.
RENAMED = {"divided-32", "divided-128", "pre-norm-warmup", "post-norm-warmup"}

WINOGRAD, INDUCTION = (
    {made.id: made for made in shown.models} for shown in (experiments.WINOGRAD_CLOSED, experiments.INDUCTION)
)
TABLES = {"text": VARIANTS, "winograd": WINOGRAD, "induction": INDUCTION}
ALL = [pytest.param(made, id=f"{name}:{key}") for name, rows in TABLES.items() for key, made in rows.items()]


def changed_fields(one, other):
    return {f.name for f in fields(ModelConfig) if getattr(one, f.name) != getattr(other, f.name)}


def lines_of_code(thing):
    """Lines of a class or function without docstrings, comments and empty ones."""
    source = textwrap.dedent(inspect.getsource(thing))
    lines = set(range(1, len(source.splitlines()) + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            lines -= set(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    text = source.splitlines()
    return sum(1 for n in lines if text[n - 1].strip() and not text[n - 1].strip().startswith("#"))


@pytest.mark.parametrize("rows", TABLES.values(), ids=TABLES)
def test_a_variant_changes_one_field_of_a_parent_that_stands_before_it_or_is_a_root(rows):
    for number, (name, made) in enumerate(rows.items()):
        parent = ModelConfig() if made.parent is None else rows[made.parent].config
        assert made.parent in (None, *list(rows)[:number])
        if rows is VARIANTS:
            assert (made.parent is None) == (number == 0)
            assert len(made.change) == (number > 0 and name not in RENAMED)
        else:
            assert made.parent is None or len(made.change) == 1
        assert changed_fields(made.config, parent) == set(made.change)
        assert {key: getattr(made.config, key) for key in made.change} == made.change
    own = [made.config for name, made in rows.items() if rows is not VARIANTS or name not in RENAMED]
    assert len(set(own)) == len(own), "no two are the same model"


@pytest.mark.parametrize("made", ALL)
def test_a_variant_says_what_it_is_in_one_line(made):
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", made.id)
    assert any(rows.get(made.id) is made for rows in TABLES.values())
    assert made.title
    assert 0 < len(made.short) <= 20
    said = [line for line in (made.about, made.claim) if line]
    assert said
    for line in said:
        assert line.endswith(".")
        assert "\n" not in line


@pytest.mark.parametrize("made", ALL)
def test_its_source_is_a_class_that_a_page_can_print(made):
    module, _, class_name = made.source.partition(".")
    found = getattr(importlib.import_module(f"engine.models.{module}"), class_name)
    assert inspect.isclass(found)
    assert found.__module__ == f"engine.models.{module}"
    assert found.__doc__
    assert lines_of_code(found) <= MAX_SOURCE_LINES


def test_lines_of_code_counts_code_alone():
    assert lines_of_code(changed_fields) == 2
    assert lines_of_code(lines_of_code) == 9


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_variants_of_an_experiment_have_names_of_their_own(name):
    shown = [EXPERIMENTS[name].variant(variant_id) for variant_id in EXPERIMENTS[name].variants]
    assert len({made.title for made in shown}) == len({made.short for made in shown}) == len(shown)


def test_no_variant_that_has_a_name_is_left_over():
    for module in (variants, language_variants):
        named = [made for made in vars(module).values() if isinstance(made, Variant)]
        assert {made.id for made in named} <= {key for rows in TABLES.values() for key in rows}
    assert {made.id for made in variants.UNDIVIDED.values()} <= set(VARIANTS)


def test_an_id_means_one_model_of_the_text():
    for shown in EXPERIMENTS.values():
        assert shown.language or all(VARIANTS[made.id] is made for made in shown.models)


def defined_in(module):
    return [
        kind for _, kind in inspect.getmembers(module, inspect.isclass) if kind.__module__ == module.__name__
    ]


@pytest.mark.parametrize(
    "kind", [kind for module in (mixers, positions, block) for kind in defined_in(module)]
)
def test_every_part_of_a_model_is_short_enough_to_print(kind):
    assert lines_of_code(kind) <= MAX_SOURCE_LINES


def test_what_a_variant_is_called_is_derived_where_nothing_is_said():
    made = variants.BLOCK.then("eight-heads", {"n_head": 8}, title="eight heads", about="More answers.")
    assert (made.short, made.part, made.spoken) == ("eight heads",) * 3
    assert (made.parent, made.source) == ("block", "mixers.CausalSelfAttention")
    assert made.config == replace(variants.BLOCK.config, n_head=8)
    assert made.lineage[0] is variants.NO_CONTEXT
