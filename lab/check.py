"""``python -m lab --check``: what this machine has, and what to do about what is missing."""

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass

from engine.data import corpus
from engine.runs import dispatcher
from engine.system import device, paths
from engine.system.errors import LabError

NEEDED_BYTES = 2 * 10**9  # a long sweep's checkpoints, with room to spare


@dataclass(frozen=True)
class Finding:
    """One line of the report. todo: what to do, empty when all is well; blocks: the lab cannot run so."""

    name: str
    found: str
    todo: str = ""
    blocks: bool = False


def report(port: int) -> tuple[str, bool]:
    """The whole report as text, and whether the lab can run. port: 0 when the one asked for is taken."""
    findings = [Finding("Python", platform.python_version()), *_device(), _disk(), _port(port), _corpus()]
    if dispatcher.running():
        findings.append(Finding("Lab", "open: a dispatcher serves this data folder"))
    else:
        findings.append(Finding("Lab", "closed", "start it with `make lab` or `python -m lab`"))
    lines = []
    for finding in findings:
        lines.append(f"{finding.name:<11}{finding.found}")
        if finding.todo:
            lines.append(f"{'':<11}-> {finding.todo}")
    return "\n".join(lines), not any(finding.blocks for finding in findings)


def _device() -> list[Finding]:
    try:
        here = device.describe()
    except LabError as error:
        return [Finding("Device", f"torch does not start: {error}", "run `make lab` to set it up", True)]
    findings = [Finding("Device", f"{here.title}, torch {here.torch}")]
    card = _nvidia_card()
    if card and here.torch_is_cpu_build:
        pin = here.torch.split("+")[0]
        command = f"{sys.executable} -m pip install --force-reinstall torch=={pin}"
        todo = f"{command} (on Windows: the command that pytorch.org/get-started gives)"
        findings.append(Finding("Card", f"{card} is idle: your torch is a CPU build", todo))
    elif card and here.kind == "cpu":
        findings.append(Finding("Card", f"{card} is idle: torch does not see it", "update the NVIDIA driver"))
    return findings


def _nvidia_card() -> str | None:
    """The first NVIDIA card by name, asked of its driver and not of torch."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        names = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(names.strip().splitlines()), None)


def _disk() -> Finding:
    # A folder that is not there yet is made in its nearest parent that exists.
    existing = next(here for here in (paths.HOME, *paths.HOME.parents) if here.exists())
    if not os.access(existing, os.W_OK):
        todo = "set ATTENTION_LAB_HOME to a folder of yours"
        return Finding("Disk", f"{paths.HOME} cannot be written", todo, True)
    free = shutil.disk_usage(existing).free
    todo = "free 2 GB, or set ATTENTION_LAB_HOME to a folder with more room" if free < NEEDED_BYTES else ""
    return Finding("Disk", f"{free / 1e9:.0f} GB free in {paths.HOME}", todo)


def _port(port: int) -> Finding:
    if port:
        return Finding("Port", f"{port} is free")
    asked = os.environ.get("STREAMLIT_SERVER_PORT", "")
    todo = "close what uses it, or set another STREAMLIT_SERVER_PORT"
    return Finding("Port", f"{asked} cannot be used", todo, True)


def _corpus() -> Finding:
    if not corpus.is_present(corpus.TINYSHAKESPEARE):
        todo = (
            f"it is fetched at the next start; without a network place {corpus.TINYSHAKESPEARE_URL} at "
            f"{paths.DATA / 'tinyshakespeare.txt'} by hand"
        )
        return Finding("Text", "Tiny Shakespeare is not here yet; Python's own reference text is used", todo)
    try:
        text = corpus.load(corpus.TINYSHAKESPEARE)
    except corpus.CorpusError as error:
        return Finding("Text", str(error), "remove the file; it is fetched anew at the next start")
    return Finding("Text", f"Tiny Shakespeare, {text.tokens:,} tokens, checksum verified")
