"""What everything above uses: numbers that people write, errors of the file system, the device's cache."""

import errno
import json

import pytest

from engine.runs.store import Store
from engine.system import cores, device, files, paths
from engine.system.errors import InvalidInput, LabError, Unavailable
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
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), OSError(errno.EDQUOT, "Disk quota exceeded")],
)
def test_a_full_disk_is_named_by_the_number_of_this_system(error):
    assert files.plain_os_error(error).startswith("disk full: ")


def test_a_full_disk_is_named_on_windows():
    error = OSError(errno.EINVAL, "There is not enough space on the disk")
    error.winerror = 112
    assert files.plain_os_error(error).startswith("disk full: ")
    error.winerror = 5
    assert files.plain_os_error(error).startswith("file error: ")


def test_another_error_of_the_file_system_is_no_full_disk():
    error = PermissionError(errno.EACCES, "Permission denied", "/somewhere/checkpoint.safetensors")
    assert files.plain_os_error(error) == "file error: Permission denied (checkpoint.safetensors)"


def test_an_updated_driver_is_asked_about_anew(tmp_path, monkeypatch):
    driver = tmp_path / "version"
    monkeypatch.setattr(paths, "DATA", tmp_path)
    monkeypatch.setattr(device, "DRIVERS", (driver,))
    answers = iter(("cpu", "cuda"))
    monkeypatch.setattr(
        device,
        "_ask",
        lambda: {
            "kind": next(answers),
            "title": "a device",
            "memory_bytes": 0,
            "torch": "2",
            "torch_is_cpu_build": False,
        },
    )

    def described():
        device.describe.cache_clear()
        return device.describe().kind

    try:
        assert described() == "cpu"
        assert described() == "cpu"  # from the cache: nobody was asked again
        driver.write_text("NVRM version: 570.1\n")
        assert described() == "cuda"
        assert described() == "cuda"
        assert json.loads((tmp_path / "cache" / "device.json").read_text())["kind"] == "cuda"
    finally:
        device.describe.cache_clear()


def test_every_error_of_a_reader_is_one_tree():
    assert issubclass(InvalidInput, LabError)
    assert issubclass(Unavailable, LabError)
