"""The languages by id, as ``corpus.py`` has the texts: three built in, and those that a person edited.

An edited one is ``winograd-<first 16 hex digits of its sha256>``; its words lie under the data folder, so
that a run on it can be resumed, repeated and found again. Imports no torch.
"""

import hashlib
import re
from pathlib import Path

from filelock import FileLock

from engine.data.languages.induction import INDUCTION, Repeats
from engine.data.languages.winograd import CLOSED, OPEN, Winograd
from engine.system import files, paths
from engine.system.errors import InvalidInput, Unavailable

Language = Winograd | Repeats

BUILT_IN: dict[str, Language] = {language.kind: language for language in (OPEN, CLOSED, INDUCTION)}
TITLES = {
    "winograd-open": "Winograd, animals and places",
    "winograd-closed": "Winograd, one pool of nouns",
    "induction": "Repeated random tokens",
}
_EDITED = re.compile(r"winograd-[0-9a-f]{16}")


def is_language(corpus_id: str) -> bool:
    """Whether the id is a language's and no text's; it may be one that is not on this machine."""
    return corpus_id in BUILT_IN or bool(_EDITED.fullmatch(corpus_id))


def load(language_id: str) -> Language:
    """The language of that id.

    Raises InvalidInput: when there is none, it is not on this machine, or its file has changed.
    """
    if built_in := BUILT_IN.get(language_id):
        return built_in
    if not _EDITED.fullmatch(language_id):
        allowed = f"{', '.join(BUILT_IN)} and winograd-<16 hex digits>"
        raise InvalidInput(f"No language is called {language_id[:80]!r}: {allowed} are allowed.")
    path = _path(language_id)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(f"{language_id} is not on this machine: edit the words again.") from error
    if not (got := hashlib.sha256(text.encode()).hexdigest()).startswith(path.stem):
        raise Unavailable(f"{path} has changed (sha256 {got}, not {path.stem}...): edit the words again.")
    return Winograd.from_json(text)


def sha256_of(language_id: str) -> str:
    """What a run is bound to, as ``corpus.sha256_of`` of a text. Raises InvalidInput: as ``load``."""
    return load(language_id).sha256


def id_of(language: Language) -> str:
    """The id of a language, kept or not."""
    known = {built_in.sha256: name for name, built_in in BUILT_IN.items()}
    return known.get(language.sha256) or f"winograd-{language.sha256[:16]}"


def keep(language: Winograd) -> str:
    """Keep an edited language for runs to come. Returns its id.

    Raises OSError: when it cannot be written.
    """
    language_id = id_of(language)
    if language_id not in BUILT_IN:
        path = _path(language_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            files.write_bytes(path, language.to_json().encode())
    return language_id


def title(language_id: str) -> str:
    """What it is called; of an edited one, that of its kind.

    Raises InvalidInput: as ``load``.
    """
    return TITLES.get(language_id) or f"{TITLES[load(language_id).kind]}, edited"


def _path(language_id: str) -> Path:
    return paths.DATA / "languages" / f"{language_id.removeprefix('winograd-')}.json"
