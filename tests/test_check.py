"""``python -m lab --check``: every finding, and the one command that each asks for."""

import shutil
from collections import namedtuple

import pytest

from engine.data import corpus
from engine.system import device, paths
from engine.system.errors import Unavailable
from lab import check

CPU = device.Device("cpu", "CPU, 2 cores", 0, "2.13.0+cpu", True)


@pytest.fixture
def machine(monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "HOME", tmp_path)
    monkeypatch.setattr(paths, "DATA", tmp_path / "data")
    monkeypatch.setattr(paths, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(device, "describe", lambda: CPU)
    monkeypatch.setattr(check, "_nvidia_card", lambda: None)
    return monkeypatch


def test_a_sound_machine_is_ready(machine):
    text, ready = check.report(8501)
    assert ready
    assert "CPU, 2 cores, torch 2.13.0+cpu" in text
    assert "8501 is free" in text
    assert "Card" not in text


def test_an_idle_card_under_a_cpu_build_gets_the_command(machine):
    machine.setattr(check, "_nvidia_card", lambda: "NVIDIA GeForce RTX 4070")
    text, ready = check.report(8501)
    assert ready
    assert "NVIDIA GeForce RTX 4070 is idle: your torch is a CPU build" in text
    assert "-m pip install --force-reinstall torch==2.13.0 " in text


def test_a_card_that_torch_does_not_see_asks_for_a_driver(machine):
    machine.setattr(check, "_nvidia_card", lambda: "NVIDIA H200")
    machine.setattr(device, "describe", lambda: device.Device("cpu", "CPU", 0, "2.13.0", False))
    assert "torch does not see it\n           -> update the NVIDIA driver" in check.report(8501)[0]


def test_a_card_in_use_is_no_finding(machine):
    machine.setattr(check, "_nvidia_card", lambda: "NVIDIA H200")
    machine.setattr(device, "describe", lambda: device.Device("cuda", "NVIDIA H200", 10**11, "2.13.0", False))
    assert "idle" not in check.report(8501)[0]


def test_broken_torch_blocks(machine):
    def broken():
        raise Unavailable("ImportError: libtorch.so")

    machine.setattr(device, "describe", broken)
    text, ready = check.report(8501)
    assert not ready
    assert "torch does not start: ImportError: libtorch.so" in text


def test_a_full_disk_is_said(machine):
    usage = namedtuple("usage", "total used free")
    machine.setattr(shutil, "disk_usage", lambda path: usage(10**12, 10**12 - 10**8, 10**8))
    assert "free 2 GB, or set ATTENTION_LAB_HOME" in check.report(8501)[0]


def test_a_taken_port_blocks(machine):
    machine.setenv("STREAMLIT_SERVER_PORT", "80")
    text, ready = check.report(0)
    assert not ready
    assert "80 cannot be used" in text


def test_a_missing_and_a_wrong_text_say_what_to_do(machine, tmp_path):
    text, _ = check.report(8501)
    assert corpus.TINYSHAKESPEARE_URL in text
    assert str(tmp_path / "data" / "tinyshakespeare.txt") in text
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "tinyshakespeare.txt").write_text("not by Shakespeare")
    text, _ = check.report(8501)
    assert "is not Tiny Shakespeare" in text
    assert "remove the file" in text
