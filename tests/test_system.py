"""What everything above uses: numbers that people write, errors of the file system, the device's cache."""

import errno
import json
from dataclasses import asdict

import pytest

from engine.runs.store import Store
from engine.system import cores, device, files, paths
from engine.system.numbers import whole_number


@pytest.mark.parametrize("text", ["²", "٣", "+3", "-1", "1_0", " 1", "1.0", "", "9" * 20, "1e3", "65"])
def test_only_plain_digits_of_the_range_are_a_number(text):
    assert whole_number(text, 0, 64) is None


def test_a_number_in_plain_digits_is_that_number():
    assert whole_number("64", 0, 64) == 64
    assert whole_number("007") == 7
    assert whole_number(str(2**63 - 1)) == 2**63 - 1


@pytest.mark.parametrize("given", ["²", "0", "65", "", "two"])
def test_slots_that_are_no_number_leave_the_default(given, monkeypatch):
    monkeypatch.setenv("ATTENTION_LAB_SLOTS", given)
    assert cores.default_slots() == min(4, cores.usable_cores())


def test_a_folder_named_by_a_strange_digit_is_passed_over(tmp_path):
    (tmp_path / "²").mkdir()
    (tmp_path / "7").mkdir()
    assert Store(tmp_path).runs() == []


@pytest.mark.parametrize(
    ("number", "windows", "named"),
    [
        (errno.ENOSPC, None, "disk full: said"),
        (errno.EDQUOT, None, "disk full: said"),
        (errno.EINVAL, 112, "disk full: said"),
        (errno.EINVAL, 5, "file error: said"),
        (errno.EACCES, None, "file error: said"),
    ],
)
def test_a_full_disk_is_named_by_the_number_of_this_system(number, windows, named):
    error = OSError(number, "said", "/somewhere/checkpoint.safetensors")
    error.winerror = windows
    assert files.plain_os_error(error) == f"{named} (checkpoint.safetensors)"


def test_an_updated_driver_is_asked_about_anew(tmp_path, monkeypatch):
    driver, answers = tmp_path / "version", iter(("cpu", "cuda"))
    monkeypatch.setattr(paths, "DATA", tmp_path)
    monkeypatch.setattr(device, "DRIVERS", (driver,))
    found = device.Device("cpu", "a device", 0, "2", False)
    monkeypatch.setattr(device, "_ask", lambda: {**asdict(found), "kind": next(answers)})

    def described():
        device.describe.cache_clear()
        return device.describe().kind

    try:
        assert [described(), described()] == ["cpu", "cpu"]  # from the cache: nobody was asked again
        driver.write_text("NVRM version: 570.1\n")
        assert [described(), described()] == ["cuda", "cuda"]
        assert json.loads((tmp_path / "cache" / "device.json").read_text())["kind"] == "cuda"
    finally:
        device.describe.cache_clear()
