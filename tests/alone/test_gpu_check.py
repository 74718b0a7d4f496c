"""``python -m engine bench gpu-check``: rehearsed on the CPU; a section that fails takes no other with it."""

import json
import time

import psutil
import pytest

from engine.benchmarks import gpu_check, on_device
from engine.benchmarks.gpu_check import Section
from engine.chapter.experiments import EXPERIMENTS
from engine.system import device
from tests.test_cli import assert_refused, cli, strict


@pytest.mark.timeout(600)
@pytest.mark.full
def test_a_rehearsal_on_the_cpu_goes_through_every_section(python, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    out = tmp_path / "found.json"
    command = ("-m", "engine", "bench", "gpu-check", "--device", "cpu", "--rehearse")
    ended = python(*command, "--out", out, "--json", timeout=500)
    document = strict(ended.stdout)
    assert ended.returncode == 0, gpu_check.failures(document)
    assert json.loads(out.read_text()) == document
    assert (document["bench"], document["rehearsal"], document["kind"]) == ("gpu-check", True, "cpu")
    assert document["device"].startswith("CPU, ")
    rows = {row["name"]: row for row in document["sections"]}
    assert list(rows) == ["variants", "training", "wall", "steps", "stacked", "quick averages"]
    assert {row["state"] for row in rows.values()} == {"done"}
    found = {name: row["found"] for name, row in rows.items()}
    assert max(row["logits"] for row in found["variants"]["rows"]) < on_device.TOLERANCE
    assert [row["from_unstopped"] for row in found["training"]["rows"]] == [0, 0]
    assert {row["state"] for row in found["wall"]["rows"]} == {"done"}
    assert {row["implementation"] for row in found["steps"]["rows"]} >= {"ours", "plain"}
    assert [row["seeds"] for row in found["stacked"]["rows"]] == [4]
    assert found["quick averages"]["rows"][0]["state"] == "done"
    assert document["startup"]["runs"] == 1
    assert 0 < document["startup"]["share"] < 1
    said = gpu_check.text(document)
    assert said.startswith("rehearsal of gpu-check, in sizes that measure nothing, CPU, ")
    assert "start-up: " in said


def commands(kind, peer=None):
    return {one.name: one.arguments for one in gpu_check.sections(kind, peer, rehearse=False)}


def test_on_a_card_every_experiment_has_its_section_after_all_others(tmp_path):
    assert list(commands("cuda"))[5:] == [f"quick {name}" for name in EXPERIMENTS]
    assert sum([one.seconds for one in gpu_check.sections("cuda", None, rehearse=False)][:5]) < 500
    assert "--gpu-check" in commands("cuda")["wall"]
    assert "--gpu-check" not in commands("mps")["wall"]
    assert commands("cuda", tmp_path)["steps"][-3:] == ("--peer", str(tmp_path), "--json")


@pytest.fixture
def sections(home, monkeypatch):
    """Short sections in place of the real ones, on a card that is not there."""

    def use(**codes):
        made = [Section(name, ("-c", code), 20) for name, code in codes.items()]
        monkeypatch.setattr(gpu_check, "sections", lambda *_, **__: made)

    card = device.Device("cuda", "A card", 8 * 2**30, "2.13.0", False)
    monkeypatch.setattr(device, "describe", lambda: card)
    monkeypatch.setattr(gpu_check, "STOP_SECONDS", 0.5)
    return use


def test_what_fails_is_written_down_and_the_next_begins(sections):
    sections(
        crashes="import os; os.abort()",
        raises="raise RuntimeError('CUDA error: out of luck')",
        unmet='print(\'{"failed": ["the loss does not fall"]}\')',
        silent="pass",
        fine="print('{\"rows\": [1]}')",
    )
    document = gpu_check.bench()
    rows = {row["name"]: row for row in document["sections"]}
    assert {name: row["state"] for name, row in rows.items()} == {
        "crashes": "failed", "raises": "failed", "unmet": "failed", "silent": "failed", "fine": "done",
    }  # fmt: skip
    assert rows["raises"]["reason"] == "RuntimeError: CUDA error: out of luck"
    assert rows["unmet"]["reason"] == "the loss does not fall"
    assert rows["crashes"]["reason"] == "exit code -6, without a word"
    assert rows["fine"]["found"] == {"rows": [1]}
    assert document["device"] == "A card"
    assert document["startup"] is None
    assert len(gpu_check.failures(document)) == 4


SLEEPS = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(99)"])
time.sleep(99)
"""


def test_what_does_not_end_is_ended_with_all_that_it_started(sections, monkeypatch):
    sections(hangs=SLEEPS, after="print('{}')")
    monkeypatch.setattr(gpu_check, "LEAST_SECONDS", 0.1)
    began = time.monotonic()
    before = {one.pid for one in psutil.process_iter()}
    row, after = gpu_check.bench(minutes=0.1)["sections"]
    assert (row["state"], row["reason"]) == ("out of time", "it did not end within 5 s")
    assert after["state"] in ("done", "skipped", "out of time")
    assert time.monotonic() - began < 15
    new = [one for one in psutil.process_iter(["cmdline"]) if one.pid not in before]
    assert not [one for one in new if "time.sleep(99)" in " ".join(one.info["cmdline"] or [])]


def test_without_time_left_a_section_is_skipped_and_that_is_no_failure(sections):
    sections(late="print('{}')")
    document = gpu_check.bench(minutes=0.2)
    assert document["sections"][0]["state"] == "skipped"
    assert gpu_check.failures(document) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "device is 'cpu'; allowed here: none, since torch finds no accelerator; add --rehearse."),
        (("--device", "cuda", "--rehearse"), "device is 'cuda'; allowed here: cpu."),
        (("--minutes", "99"), "minutes are 99.0; allowed: 0.1 to 60."),
    ],
)
def test_what_cannot_be_measured_here_is_refused(home, monkeypatch, arguments, sentence):
    here = device.Device("cpu", "CPU, 2 cores", 0, "2.13.0", False)
    monkeypatch.setattr(device, "describe", lambda: here)
    assert_refused(*cli("bench", "gpu-check", *arguments), sentence)
