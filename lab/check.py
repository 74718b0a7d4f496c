"""``python -m lab --check``: what this machine has, and what to do about what is missing."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

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
    findings = [_python(), *_device(), _disk(), _port(port), _corpus(), _dispatcher()]
    lines = []
    for finding in findings:
        lines.append(f"{finding.name:<11}{finding.found}")
        if finding.todo:
            lines.append(f"{'':<11}-> {finding.todo}")
    return "\n".join(lines), not any(finding.blocks for finding in findings)


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("Python", version)


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
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    try:
        asked = subprocess.run(
            [tool, "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(asked.stdout.strip().splitlines()), None)


def _disk() -> Finding:
    free = shutil.disk_usage(_existing(paths.HOME)).free
    found = f"{free / 1e9:.0f} GB free in {paths.HOME}"
    if not os.access(_existing(paths.HOME), os.W_OK):
        return Finding(
            "Disk", f"{paths.HOME} cannot be written", "set ATTENTION_LAB_HOME to a folder of yours", True
        )
    if free < NEEDED_BYTES:
        return Finding("Disk", found, "free 2 GB, or set ATTENTION_LAB_HOME to a folder with more room")
    return Finding("Disk", found)


def _existing(path: Path) -> Path:
    """The path, or its nearest parent that exists."""
    return next(here for here in (path, *path.parents) if here.exists())


def _port(port: int) -> Finding:
    asked = os.environ.get("STREAMLIT_SERVER_PORT", "")
    if port == 0:
        return Finding(
            "Port",
            f"{asked} cannot be used",
            "close what uses it, or set another STREAMLIT_SERVER_PORT",
            True,
        )
    return Finding("Port", f"{port} is free")


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


def _dispatcher() -> Finding:
    if dispatcher.running():
        return Finding("Lab", "open: a dispatcher serves this data folder")
    return Finding("Lab", "closed", "start it with `make lab` or `python -m lab`")
