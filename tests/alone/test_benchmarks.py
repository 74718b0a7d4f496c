"""``python -m engine bench``: strict JSON, fair turns, one sentence for what is wrong, nothing left behind.

Shapes are tiny; no figure is asserted but those that are counted.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest
import torch

from engine import benchmarks
from engine.benchmarks import products, steps, sweep, train
from engine.chapter.budget import Budget
from engine.chapter.experiments import VARIANTS
from engine.models import ledger
from engine.models.transformer import Transformer
from engine.runs.local import LocalEngine
from engine.runs.nursery import Nursery
from engine.system import device, paths
from engine.system.cores import usable_cores
from engine.system.processes import MALLOC
from tests.serving import until
from tests.test_cli import assert_refused, cli, strict

SMALL = ("--layers", "1", "--batch", "2", "--threads", "1", "--rounds", "2")

# The interface of nanoGPT's model.py; it talks, as that does, and says what environment it finds.
PEER = """
import json, os
from dataclasses import dataclass
from pathlib import Path
import torch
from torch import nn
from torch.nn import functional as F

@dataclass
class GPTConfig:
    block_size: int = 8
    vocab_size: int = 8
    n_layer: int = 1
    n_head: int = 1
    n_embd: int = 8
    dropout: float = 0.5
    bias: bool = False

class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        print("number of parameters: some")
        found = {"malloc": {k: v for k, v in os.environ.items() if k.startswith("MALLOC_")}, **vars(config)}
        Path(__file__).with_name("found.json").write_text(json.dumps(found))
        self.table = nn.Embedding(config.vocab_size, config.n_embd)
        self.out = nn.Linear(config.n_embd, config.vocab_size)

    def forward(self, idx, targets=None):
        logits = self.out(self.table(idx))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
"""


@pytest.fixture
def peer(tmp_path):
    folder = tmp_path / "nano"
    folder.mkdir()
    (folder / "model.py").write_text(PEER)
    return folder


@pytest.fixture
def task(one_thread):
    config = replace(VARIANTS["block"].config, n_layer=2)
    ids = torch.randint(config.vocab_size, (1000,))
    return steps.Task(config=config, batch_size=2, ids=ids, device="cpu")


@pytest.fixture
def with_bfloat16(monkeypatch):
    monkeypatch.setattr(train, "bfloat16_refusal", lambda kind: None)


# One training step


def test_all_implementations_are_measured_in_one_process(python, peer):
    ended = python("-m", "engine", "bench", "train", *SMALL, "--peer", peer, "--json")
    assert ended.returncode == 0, ended.stderr
    document = strict(ended.stdout)
    assert (document["bench"], document["threads"], document["torch"]) == ("train", 1, torch.__version__)
    assert document["date"][:2] == "20"
    rows = {(row["implementation"], row["dtype"]): row for row in document["rows"]}
    half = set() if document["notes"] else {("ours", "bfloat16")}
    assert set(rows) == {("ours", "float32"), ("plain", "float32"), ("nanogpt", "float32"), *half}
    for row in rows.values():
        assert row["n_layer"] == 1
        assert row["reason"] is None
        assert row["step_ms"] > 0
        assert row["tokens_per_s"] == pytest.approx(2 * 128 / row["step_ms"] * 1000, rel=0.01)
        assert min(row["gemm_share"], row["ratio_to_plain"], row["ratio_to_peer"]) > 0
    assert rows["plain", "float32"]["ratio_to_plain"] == 1
    assert rows["nanogpt", "float32"]["ratio_to_peer"] == 1
    assert {(g["n_layer"], g["dtype"]) for g in document["gemm"]} == {(1, dtype) for _, dtype in rows}
    assert min(g["gflop_per_s"] for g in document["gemm"]) > 0
    assert "1 layer: 2 rounds of ours float32" in ended.stderr
    assert "number of parameters: some" in ended.stderr
    found = json.loads((peer / "found.json").read_text())
    assert found.pop("malloc") == (MALLOC if sys.platform == "linux" else {})
    sizes = {"block_size": 128, "vocab_size": 1024, "n_layer": 1, "n_head": 4, "n_embd": 128}
    assert found == {**sizes, "dropout": 0.0, "bias": True}


def test_without_a_peer_its_ratio_is_null_and_the_text_is_a_line_a_row(home, one_thread, with_bfloat16):
    code, out, _ = cli("bench", "train", *SMALL, "--layers", "2,1", "--json")
    assert code == 0
    document = strict(out)
    assert [(row["n_layer"], row["implementation"], row["dtype"]) for row in document["rows"]] == [
        (n_layer, *name)
        for n_layer in (2, 1)
        for name in (("ours", "float32"), ("ours", "bfloat16"), ("plain", "float32"))
    ]
    assert all(row["ratio_to_peer"] is None for row in document["rows"])
    lines = train.text(document).splitlines()
    assert len(lines) == 2 + 6 + 4
    assert lines[1].split("  ")[0] == "implementation"
    assert lines[2].split()[:3] == ["ours", "2", "float32"]
    assert lines[2].endswith(" -")
    assert lines[8].startswith("products, 2 layers, float32: ")
    assert torch.get_num_threads() == 1


def test_what_cannot_be_compiled_is_a_row_that_says_so(home, one_thread, monkeypatch):
    def none(*_, **__):
        raise RuntimeError("no compiler here.\nand a long story")

    monkeypatch.setattr(torch, "compile", none)
    monkeypatch.setattr(train, "bfloat16_refusal", lambda kind: "bfloat16 is not offered: a test.")
    code, out, _ = cli("bench", "train", *SMALL, "--compile", "--json")
    assert code == 0
    document = strict(out)
    compiled = document["rows"][-1]
    assert compiled["implementation"] == "compiled"
    assert compiled["reason"] == "compiled with 1 layer does not run: RuntimeError: no compiler here."
    measured = ("step_ms", "tokens_per_s", "gemm_share", "ratio_to_plain", "ratio_to_peer")
    assert all(compiled[key] is None for key in measured)
    said = train.text(document).splitlines()
    assert said[-2:] == [compiled["reason"], "bfloat16 is not offered: a test."]


def test_bfloat16_is_offered_only_where_there_are_instructions_for_it(monkeypatch):
    for name in steps.CPU_BFLOAT16:
        monkeypatch.setattr(torch.cpu, name, lambda: False, raising=False)
    assert "neither avx512_bf16 nor AMX" in steps.bfloat16_refusal("cpu")
    monkeypatch.setattr(torch.cpu, steps.CPU_BFLOAT16[1], lambda: True)
    assert steps.bfloat16_refusal("cpu") is None
    for name in steps.CPU_BFLOAT16:  # another torch, which may not have these names
        monkeypatch.delattr(torch.cpu, name)
    assert "neither avx512_bf16 nor AMX" in steps.bfloat16_refusal("cpu")
    assert "of mps" in steps.bfloat16_refusal("mps")


def test_our_steps_differ_in_the_precision_of_their_products_alone(task):
    exact, rounded = (steps.our_step(task, dtype, 1)().item() for dtype in ("float32", "bfloat16"))
    assert exact != rounded
    assert exact == pytest.approx(rounded, rel=0.01)


def test_the_order_of_turns_changes_so_that_nobody_always_follows_the_same_one():
    candidates = [steps.Candidate(name, "float32", lambda: None) for name in "abcd"]
    orders = ["".join(one.implementation for one in train.turn_order(candidates, n)) for n in range(4)]
    assert orders == ["abcd", "adcb", "cdab", "cbad"]


def test_each_has_one_turn_a_round_and_ratios_are_taken_within_a_round(task):
    called: list[str] = []
    candidates = [steps.Candidate(name, "float32", partial(called.append, name)) for name in "abc"]
    candidates[2].reason = "it does not run."
    train.take_turns(candidates, 3, task)
    assert "".join(called) == "abab" + "ab" + "ab" + "ab"  # round 1 begins at b, read backwards
    assert [len(one.seconds) for one in candidates] == [3, 3, 0]
    slow, fast = candidates[:2]
    slow.seconds, fast.seconds = [2.0, 40.0, 3.0], [1.0, 10.0, 1.0]  # the machine was slow in round 1
    assert slow.times_slower_than(fast) == 3.0
    assert slow.times_slower_than(candidates[2]) is None


def test_the_products_are_those_of_the_models_linear_layers(task):
    linear = [m for m in Transformer(task.config).modules() if isinstance(m, torch.nn.Linear)]
    assert products.linear_layers(task.config) == [(m.in_features, m.out_features) for m in linear]
    assert products.products_flop(task) == 6 * ledger.multiplications(task.config, 0) * 256
    attention = 2 * 2 * 128 * 128  # two blocks; scores and mixture over a window of 128, all heads 128 wide
    assert products.step_flop(task) - products.products_flop(task) == 6 * attention * 256
    products.products_step(task, "bfloat16")()


def test_slices_are_windows_of_the_text_and_what_follows(task):
    task = replace(task, ids=torch.arange(1000))
    x, y = steps.slices(task)()
    assert x.shape == y.shape == (2, 128)
    assert torch.equal(y, x + 1)
    assert torch.equal(x, x[:, :1] + torch.arange(128))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("train", *SMALL, "--layers", "1,0"), "layers are '1,0'; allowed: whole numbers from 1 to 1,000"),
        (("train", *SMALL, "--layers", "1,1"), "layers are '1,1'; allowed: whole numbers from 1 to 1,000"),
        (("train", *SMALL, "--layers", ""), "layers are ''"),
        (("train", *SMALL, "--layers", "1.5"), "layers are '1.5'"),
        (("train", *SMALL, "--batch", "0"), "batch is 0; allowed: a whole number from 1 to 65,536."),
        (("train", *SMALL, "--threads", "9999"), "threads is 9,999; allowed: a whole number from 1 to "),
        (("train", *SMALL, "--rounds", "0"), "rounds is 0; allowed: a whole number from 1 to 10,000."),
        (("train", *SMALL, "--rounds", "two"), "argument --rounds: invalid int value: 'two'"),
        (("train", *SMALL, "--peer", "/none"), "which is no folder; allowed: a checkout of nanoGPT"),
        (("sweep", "--runs", "0"), "runs is 0; allowed: a whole number from 1 to 1,000."),
        (("sweep", "--steps", "0"), "steps is 0; allowed: a whole number from 1 to 10,000,000."),
        ((), "required: BENCHMARK"),
    ],
)
def test_what_is_out_of_range_is_refused_in_a_sentence(one_thread, arguments, said):
    assert_refused(*cli("bench", *arguments), said)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (None, "which has no model.py"),
        ("1 +", "cannot be imported: SyntaxError: "),
        ("raise ImportError('no tiktoken\\nhere')", "cannot be imported: ImportError: no tiktoken."),
        ("GPT = 1", "defines no GPT and no GPTConfig; allowed: a checkout of nanoGPT"),
        (PEER.replace("    bias: bool = False\n", ""), "got an unexpected keyword argument 'bias'"),
        (
            PEER.replace("        return logits, ", "        return "),
            "n_embd=128, dropout=0.0, bias=True: TypeError",
        ),
    ],
    ids=["no-model", "syntax", "import", "no-classes", "arguments", "step"],
)
def test_a_peer_that_cannot_be_measured_is_refused_in_a_sentence(one_thread, tmp_path, written, said):
    if written is not None:
        (tmp_path / "model.py").write_text(written)
    with pytest.raises(ValueError, match=r"\.$") as refused:
        train.bench(layers=(1,), batch_size=2, threads=1, rounds=1, peer=tmp_path, compile_plain=False)
    assert said in str(refused.value)
    assert str(tmp_path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_only_the_command_itself_is_started_again(monkeypatch):
    monkeypatch.delenv("MALLOC_TOP_PAD_", raising=False)
    benchmarks.keep_freed_memory()  # and this process goes on
    assert "MALLOC_TOP_PAD_" not in os.environ


# A sweep


@pytest.fixture
def tiny_runs(tiny_corpus, tmp_path, monkeypatch):
    """The sweep's runs on a small text, in a temporary folder of the test's own. Returns that folder."""
    usual = sweep.specs

    def tiny(runs, steps):
        budget = Budget(steps=steps, batch_size=2, context_length=16)
        return [replace(spec, budget=budget) for spec in usual(runs, steps)]

    monkeypatch.setattr(sweep, "TEXT", tiny_corpus)
    monkeypatch.setattr(sweep, "specs", tiny)
    monkeypatch.setattr(device, "describe", lambda: device.Device("cpu", "a test", 0, "2", False))
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.full
def test_a_sweep_is_timed_at_once_and_one_after_another(tiny_runs, home, monkeypatch):
    quick = [sys.executable, "-m", "tests.trainers", "quick"]  # one after another is slow: no torch
    ways = {(2, 1): LocalEngine(2), (1, usable_cores()): LocalEngine(1, trainer=quick)}
    monkeypatch.setattr(sweep, "ways", lambda: ways)
    code, out, err = cli("bench", "sweep", "--runs", "2", "--steps", "3", "--json")
    assert code == 0, err
    document = strict(out)
    assert (document["bench"], document["device"], document["steps"]) == ("sweep", "a test", 3)
    at_once, after = document["rows"]
    assert (at_once["at_once"], at_once["threads_each"], at_once["runs"]) == (2, 1, 2)
    assert (after["at_once"], after["threads_each"], after["runs"]) == (1, usable_cores(), 2)
    assert after["ratio_to_one_after_another"] == 1
    assert at_once["ratio_to_one_after_another"] == pytest.approx(
        after["wall_s"] / at_once["wall_s"], abs=0.05
    )
    assert "2 runs, 2 at once, 1 thread each" in err
    assert list(tiny_runs.iterdir()) == []
    assert not paths.RUNS.exists(), "the lab's own ledger knows nothing of it"
    lines = sweep.text(document).splitlines()
    assert lines[1].split("  ")[0] == "at once"
    assert len(lines) == 4


def test_the_ways_of_a_sweep(monkeypatch):
    monkeypatch.setattr(sweep, "usable_cores", lambda: 8)
    monkeypatch.setattr(sweep, "default_slots", lambda: 4)
    monkeypatch.setattr(Nursery, "warms_up", lambda *_: False)
    ways = sweep.ways()
    assert list(ways) == [(4, 2), (1, 8), (1, 1)]
    assert [engine.capacity() for engine in ways.values()] == [4, 1, 1]
    monkeypatch.setattr(sweep, "usable_cores", lambda: 1)
    monkeypatch.setattr(sweep, "default_slots", lambda: 1)
    assert list(sweep.ways()) == [(1, 1)]
    assert sweep.rows({(1, 1): 2.0}, 8)[0]["ratio_to_one_after_another"] == 1


def test_the_runs_are_of_one_real_text_and_differ_by_their_seed(home):
    wanted = sweep.specs(3, 16)
    assert [spec.seed for spec in wanted] == [0, 1, 2]
    assert len({spec.digest for spec in wanted}) == 3
    assert {spec.corpus for spec in wanted} == {"python-reference"}


def test_a_failed_run_is_told_and_no_time_is_printed(tiny_runs, monkeypatch):
    trainer = [sys.executable, "-c", "raise SystemExit(3)"]
    monkeypatch.setattr(sweep, "LocalEngine", lambda slots: LocalEngine(slots, trainer=trainer))
    code, out, err = cli("bench", "sweep", "--runs", "1", "--steps", "3", "--json")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1] == (
        "the run with seed 0 of the sweep: failed: the trainer exited with code 3"
    )
    assert list(tiny_runs.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")
def test_ctrl_c_ends_the_runs_and_leaves_nothing(home, tmp_path):
    folder = tmp_path / "temporary"
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "engine", "bench", "sweep", "--steps", "100000"],
        cwd=paths.ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: list(folder.glob("*/*/metrics.jsonl")), 60, "no run trains")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert list(folder.iterdir()) == []
    until(lambda: not working_in(folder), 60, lambda: working_in(folder))


def working_in(folder: Path):
    """Processes whose command line names something in the folder."""
    commands = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return [command for command in commands if any(str(folder) in word for word in command)]
