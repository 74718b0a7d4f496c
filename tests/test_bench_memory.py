"""``python -m engine bench memory``: strict JSON, a table for people, one sentence for what is wrong."""

import json
from dataclasses import asdict, replace

import pytest

from engine.benchmarks import memory
from engine.memory_wall import predict
from engine.memory_wall.plan import Plan, Row, doubling, ratios, slope, slopes
from engine.memory_wall.predictions import Longest, Predictions
from engine.memory_wall.setting import (
    CHAPTER,
    CHAPTER_EXPONENTS,
    GB,
    MB,
    WORKSPACE_BYTES,
    Setting,
    closed_form,
)
from engine.probes import client
from engine.runs import wait
from engine.runs.spec import WallSpec
from engine.runs.store import Store
from engine.system import device, paths
from engine.system.errors import InvalidInput
from tests.test_cli import InstantEngine, assert_refused, cli, strict

KEYS = {
    *("n", "implementation", "state", "peak_bytes", "predicted_bytes", "closed_form_bytes"),
    *("step_ms", "spread_ms", "backend", "reason"),
}
TIMES = [1.27, 2.02, 2.85, 3.14, 4.37, 3.69]  # each row of the chapter's over the one before
LONGEST = (Longest(8.0, "explicit", 11_338), Longest(16.0, "explicit", 16_065))


@pytest.fixture
def here(home, monkeypatch):
    found = device.Device("cpu", "CPU, 2 cores", 0, "2.13.0", False)
    monkeypatch.setattr(device, "describe", lambda: found)
    return monkeypatch


class Measured(InstantEngine):
    """Ends a measurement the moment it is launched, with these rows and this outcome."""

    def __init__(self, rows, **outcome):
        super().__init__()
        self.rows, self.ended, self.plans = rows, outcome or {"state": "done"}, []

    def outcome(self, _):
        return self.ended

    def launch(self, run, directory, slot):
        self.plans.append(run.spec.plan)
        rows = self.rows(run.spec.plan) if callable(self.rows) else self.rows
        lines = [json.dumps(asdict(row)) + "\n" for row in rows]
        (directory / "metrics.jsonl").write_text("".join(lines))
        super().launch(run, directory, slot)


@pytest.fixture
def measured(here):
    """What a measurement ends with from now on. Returns the engine, which keeps what was asked of it."""

    def use(rows, **outcome):
        engine, answer = Measured(rows, **outcome), client.Answer(Predictions(longest=LONGEST), 1.0)
        here.setattr(wait, "LocalEngine", lambda: engine)
        here.setattr(client, "ask", lambda probe, **asked_for: answer)
        return engine

    return use


@pytest.fixture
def chapter(measured):
    """The chapter's rows in place of measured ones, and the plans that were asked for."""

    def rows(plan):
        for line in CHAPTER:
            peak = closed_form(line.n, workspace_bytes=plan.workspace_bytes)
            row = Row(n=line.n, implementation="explicit", state="running", predicted_bytes=peak)
            yield row
            if line.step_ms is None:
                yield replace(row, state="out of memory", closed_form_bytes=peak, reason="Too much.")
            else:
                done = {"peak_bytes": peak, "closed_form_bytes": peak, "step_ms": line.step_ms}
                yield replace(row, state="done", **done)
            other = Row(n=line.n, implementation="fused", state="done", peak_bytes=9, predicted_bytes=9)
            yield from (other, replace(other, implementation="chunked", runs_beside=1))

    return measured(rows).plans


def test_the_document(chapter):
    code, out, err = cli("bench", "memory", "--budget-gb", 8, "--to", 16_384, "--threads", 1, "--json")
    document = strict(out)
    assert code == 0, "out of memory is a result"
    assert (document["bench"], document["device"], document["torch"]) == ("memory", "CPU, 2 cores", "2.13.0")
    assert (document["threads"], document["budget_bytes"]) == (1, 2**33)
    assert len(document["rows"]) == 24
    assert all(row.keys() >= KEYS for row in document["rows"])
    slopes_of = document["slopes"]["explicit"]  # in bytes 1.87 with the workspace of a card
    assert {name: round(value, 2) for name, value in slopes_of.items()} == {"time": 1.91, "bytes": 1.91}
    explicit = [row for row in document["rows"] if row["implementation"] == "explicit"]
    assert explicit[-1]["state"] == "out of memory"
    assert [round(row["time_ratio"], 2) for row in explicit[1:7]] == TIMES
    assert document["longest"] == [asdict(line) for line in LONGEST]
    assert "running, explicit, 128 tokens" in err
    assert chapter[0].tokens == tuple(line.n for line in CHAPTER)


def test_the_table(chapter):
    code, out, _ = cli("bench", "memory", "--implementation", "explicit", "--width", 256, "--backward")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith(
        "memory wall, d_model 256, 8 heads, batch 1, float32, causal, forward and backward"
    )
    assert "explicit, 16,384: Too much." in lines
    assert "Times are of a shared device: a training ran beside. Bytes are what they are." in lines
    assert "explicit, over its last four rows: time n^1.91, bytes n^1.91" in lines
    assert any("8 GB" in line and "11,338" in line for line in lines)
    assert chapter[0].tokens[-1] == 4096, "quick unless more is asked for"


@pytest.mark.parametrize(
    ("state", "reason", "told"),
    [
        ("failed", "The bytes cannot be predicted: no torch.", "The bytes cannot be predicted: no torch."),
        ("cancelled", "by you, after 1 row", "run #1 was cancelled: by you, after 1 row."),
    ],
)
def test_what_does_not_come_to_its_end_is_one_sentence(measured, state, reason, told):
    measured([Row(n=128, implementation="fused", state="running")], state=state, reason=reason)
    assert cli("bench", "memory") == (1, "", f"running, fused, 128 tokens\n{told}\n")
    measured([Row(n=128, implementation="fused", state="failed", reason="ValueError: a bug.")])
    code, out, err = cli("bench", "memory", "--json")
    assert (code, strict(out)["rows"][0]["state"]) == (1, "failed")
    assert err.splitlines()[-1] == "fused, 128: ValueError: a bug."


def test_it_is_a_run_like_any_other(chapter):
    cli("bench", "memory", "--to", 256, "--implementation", "fused", "--json")
    (run,) = Store().entries()
    assert (run.spec, run.state) == (WallSpec(chapter[0]), "done")
    assert chapter[0] == Plan(tokens=(128, 256), implementations=("fused",))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--to", "100"], "to is 100; allowed: a whole number from 128 to 100,000,000."),
        (["--to", "many"], "argument --to: invalid int value: 'many'."),
        (["--implementation", "flash"], "implementation is 'flash'; allowed: explicit, fused"),
        (["--implementation", "fused,"], "implementation is ''"),
        (["--heads", "7"], "n_head is 7; allowed: a divisor of d_model, 512."),
        (["--width", "0"], "d_model is 0"),
        (["--dtype", "int8"], "dtype is 'int8'; allowed: float32"),
        (["--budget-gb", "0"], "the budget is 0.0 GB; allowed: above 0"),
        (["--budget-gb", "nan"], "the budget is nan GB"),
        (["--budget-gb", "0.001"], "the budget is 1,073,741 bytes; allowed: at least 9,568,256."),
        (["--threads", "0"], "threads is 0"),
        (["--device", "cuda"], "device is 'cuda'; allowed here: cpu."),
        (["--gpu-check"], "device is 'cuda'; allowed here: cpu."),
    ],
)
def test_wrong_options_are_one_sentence(here, arguments, said):
    assert_refused(*cli("bench", "memory", *arguments), said)


def test_a_card_is_held_against_the_chapter(chapter, here):
    card = device.Device("cuda", "A card", 16 * 2**30, "2.13.0", False)
    here.setattr(device, "describe", lambda: card)
    code, out, _ = cli("bench", "memory", "--gpu-check", "--json")
    document = strict(out)
    assert (document["device"], document["workspace_bytes"]) == ("A card", WORKSPACE_BYTES)
    assert document["checks"][0]["found"] == {str(r.n): r.peak_mb for r in CHAPTER if r.peak_mb}
    assert round(document["slopes"]["explicit"]["bytes"], 2) == 1.87
    assert [check["claim"] for check in document["checks"] if not check["holds"]] == []
    assert (code, chapter[0].device, chapter[0].budget_bytes) == (0, "cuda", 8 * 2**30)


def test_what_does_not_hold_is_said(chapter):
    document = memory.bench(setting=Setting(), to=16_384)
    document["rows"][0]["peak_bytes"] += 2 * MB
    document["checks"] = memory.checks(document)
    unmet = memory.failures(document)
    assert len(unmet) == 3
    assert all(sentence.startswith("does not hold: ") for sentence in unmet)


@pytest.mark.full
def test_a_real_one(here):
    arguments = ("--to", 128, "--implementation", "fused", "--width", 64, "--threads", 1, "--json")
    code, out, _ = cli("bench", "memory", *arguments)
    document = strict(out)
    (row,) = document["rows"]
    assert (code, row["state"], row["backend"]) == (0, "done", "flash (CPU)")
    assert row["peak_bytes"] == row["predicted_bytes"]
    assert row["step_ms"] > 0
    assert document["slopes"] == {"fused": {"time": None, "bytes": None}}
    assert {line["card_gb"] for line in document["longest"]} == {8, 16, 24, 80, 141}


# Plans and tables.


def test_tokens_double():
    assert doubling(1024) == (128, 256, 512, 1024)
    assert doubling(300) == (128, 256, 300)
    with pytest.raises(InvalidInput, match="to is 64; allowed: a whole number from 128"):
        doubling(64)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"tokens": (0,)}, "n is 0"),
        ({"implementations": ("flash",)}, "implementation is 'flash'"),
        ({"device": "tpu"}, "device is 'tpu'; allowed: cpu, cuda, mps."),
        ({"threads": 0}, "threads is 0"),
        ({"budget_bytes": 1000}, "the budget is 1,000 bytes; allowed: at least 9,568,256."),
    ],
)
def test_wrong_plans_are_refused(wrong, said):
    with pytest.raises(InvalidInput, match=said):
        Plan(**{"tokens": (64,), **wrong})


def test_the_chapters_exponents_and_ratios_come_out_of_its_table():
    rows = [
        Row(
            n=line.n, implementation="explicit", state="out of memory" if line.peak_mb is None else "done",
            step_ms=line.step_ms, peak_bytes=line.peak_mb and round(line.peak_mb * 2**20),
        )
        for line in CHAPTER
    ]  # fmt: skip
    found = slopes(rows)["explicit"]
    assert {key: round(value, 2) for key, value in found.items()} == CHAPTER_EXPONENTS
    assert ratios(rows)[0] == ratios(rows)[-1] == (None, None)
    assert [round(time, 2) for time, _ in ratios(rows)[1:-1]] == TIMES
    assert [round(size, 2) for _, size in ratios(rows)[1:-1]] == [1.32, 1.79, 2.59, 3.32, 3.72, 3.91]
    assert slope([(8, 1.0)]) is None


# What is shipped.


def test_the_shipped_rows_hold_and_are_what_this_code_predicts():
    document = memory.shipped()
    found = {check["claim"]: check["holds"] for check in memory.checks(document)}
    assert found
    assert all(found.values()), found
    assert (document["budget_bytes"], document["workspace_bytes"]) == (8 * GB, 0)
    assert not any(row["runs_beside"] for row in document["rows"])
    for row in document["rows"]:
        predicted = predict.predicted_bytes(row["n"], row["implementation"])
        assert row["predicted_bytes"] == predicted
        if row["state"] == "done":
            assert row["peak_bytes"] == predicted
            if row["n"] >= 2048:  # by what shares nothing with the prediction
                # Of chunked's many blocks the heap keeps a few that are free.
                kept = 20 * MB if row["implementation"] == "chunked" else 0
                assert 0 <= row["resident_bytes"] - predicted <= 0.05 * predicted + kept
    control = {row["n"]: row["step_ms"] for row in document["rows"] if row["implementation"] == "projections"}
    assert 6 <= control[16_384] / control[2048] <= 11


def test_the_documents_print_the_shipped_rows():
    document = memory.shipped()
    rows = {(row["implementation"], row["n"]): row for row in document["rows"]}
    text = (paths.ROOT / "docs" / "measured.md").read_text()
    for printed in CHAPTER:
        explicit, fused = (rows[name, printed.n] for name in ("explicit", "fused"))
        cells = [f"{printed.n:,}", "out of memory", "out of memory", "–"]
        if printed.peak_mb:
            ours = (explicit["peak_bytes"] + WORKSPACE_BYTES) / MB
            ratio = explicit["time_ratio"]
            cells = [cells[0], f"{printed.peak_mb:,.1f}", f"{ours:,.1f}", f"{ratio:.2f}" if ratio else "–"]
        shown = f"{(fused['peak_bytes'] + WORKSPACE_BYTES) / MB:,.1f}"
        assert f"| {' | '.join(cells)} | {shown} |" in text
    time, _, loaded = memory.explicit_exponents(document)
    assert f"n^{time:.2f}" in text
    assert f"n^{loaded:.2f}" in text
    assert document["date"] in text
