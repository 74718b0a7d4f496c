"""Where the lab keeps its files. Every path is absolute, so that any working folder will do.

``ATTENTION_LAB_HOME`` moves what a user's machine makes (runs, corpora, caches) elsewhere; what is
shipped (references, the tokenizer) always lies beside the code.
"""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
HOME = Path(os.environ.get("ATTENTION_LAB_HOME") or ROOT).expanduser().resolve()

DATA = HOME / "data"
RUNS = HOME / "checkpoints" / "runs"
SHIPPED_DATA = ROOT / "data"
REFERENCE = ROOT / "checkpoints" / "reference"
