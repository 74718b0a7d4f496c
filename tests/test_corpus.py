"""The corpora: exact values, round trips, and the faults that bit others (field cases 01, 03, 05)."""

import codecs
import contextlib
import hashlib
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.data import corpus, tokenizer
from engine.data.corpus import Corpus, CorpusError, CorpusUnavailable
from engine.system import paths

CASES = Path(__file__).parent / "cases"
EMOJI = "\N{WOMAN}\N{ZERO WIDTH JOINER}\N{ROCKET}"


def case(name: str) -> bytes:
    return (CASES / f"{name}.txt").read_bytes()


def files(folder: Path) -> list[str]:
    """What lies under a data folder, without the empty lock files."""
    found = (file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    return sorted(name for name in found if not name.endswith(".lock"))


def refusal(content: bytes, file_name: str, **sizes: int) -> str:
    """Return the one sentence with which an upload is refused."""
    with pytest.raises(CorpusError) as caught:
        corpus.add_upload(content, file_name, **sizes)
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    return message


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder, no download remembered, and no network."""
    monkeypatch.setattr(paths, "DATA", tmp_path / "data")
    monkeypatch.setattr(corpus, "_last_failure", None)
    monkeypatch.setattr(corpus, "TINYSHAKESPEARE_URL", "http://127.0.0.1:1/input.txt")
    monkeypatch.setattr(corpus, "CONNECT_TIMEOUT_S", 0.3)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return tmp_path / "data"


@pytest.fixture(scope="session")
def original() -> bytes:
    """Tiny Shakespeare itself, from where the lab keeps it."""
    if not (file := paths.SHIPPED_DATA / "tinyshakespeare.txt").is_file():
        pytest.skip("data/tinyshakespeare.txt is not on this machine")
    return file.read_bytes()


@pytest.fixture(scope="session")
def shakespeare(original: bytes, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "DATA", tmp_path_factory.mktemp("shakespeare"))
        (paths.DATA / "tinyshakespeare.txt").write_bytes(original)
        return corpus.load()


@pytest.fixture(scope="session")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """A small Chinese corpus, so that many characters are spread over tokens."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "DATA", tmp_path_factory.mktemp("mixed"))
        return corpus.add_upload(case("zh300_mixed"), "mixed.txt")


# The chapter's corpus


def test_tiny_shakespeare_has_the_known_size_and_split_and_is_mapped(shakespeare, original):
    assert (shakespeare.characters, shakespeare.vocab_size, shakespeare.tokens) == (1_115_394, 1024, 459_792)
    assert shakespeare.tokens - corpus.CHAPTER_TOKENS == 32
    assert (len(shakespeare.train_ids), len(shakespeare.held_out_ids)) == (413_812, 45_980)
    assert shakespeare.windows(128) == 359
    assert shakespeare.decode(shakespeare.ids) == original.decode()
    assert isinstance(shakespeare.ids, np.memmap)
    assert shakespeare.ids.dtype == np.uint16
    with pytest.raises(ValueError, match="read-only"):
        shakespeare.train_ids[0] = 1


def test_the_shipped_tokenizer_is_the_one_that_training_gives(shakespeare, original):
    shipped = (paths.SHIPPED_DATA / "tokenizer-tinyshakespeare.json").read_bytes()
    assert shakespeare.tokenizer_sha256 == hashlib.sha256(shipped).hexdigest()
    assert tokenizer.train(original.decode(), 1024).encode() == shipped
    vocabulary = corpus.shipped_vocabulary()
    assert vocabulary.tokenizer.get_vocab_size() == 1024
    assert vocabulary.encode("O Romeo") == shakespeare.encode("O Romeo")


def test_a_damaged_shipped_tokenizer_is_said(tmp_path, monkeypatch):
    (tmp_path / "tokenizer-tinyshakespeare.json").write_text("{}")
    monkeypatch.setattr(paths, "SHIPPED_DATA", tmp_path)
    with pytest.raises(CorpusError, match="missing or damaged"):
        corpus.shipped_vocabulary()


def test_a_wrong_file_placed_by_hand_is_refused_and_kept(data):
    data.mkdir()
    (data / "tinyshakespeare.txt").write_text("To be or not to be")
    got = hashlib.sha256(b"To be or not to be").hexdigest()
    with pytest.raises(CorpusError, match=f"{got}.*{corpus.TINYSHAKESPEARE_SHA256}"):
        corpus.load()
    assert (data / "tinyshakespeare.txt").read_text() == "To be or not to be"
    chosen, notice = corpus.default_corpus_id()
    assert chosen == "python-reference"
    assert got in notice


# Fetching it, from a server on this machine


@contextlib.contextmanager
def server(body: bytes, status: int = 200) -> Iterator[tuple[str, list[str]]]:
    """Serve ``body`` at every address; yields the address and the paths asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}/input.txt", asked
        running.shutdown()


def test_a_good_download_is_kept_and_asked_for_once(data, monkeypatch, original):
    assert not corpus.is_present("tinyshakespeare")
    with server(original) as (url, asked):
        monkeypatch.setattr(corpus, "TINYSHAKESPEARE_URL", url)
        assert [corpus.default_corpus_id() for _ in range(2)] == [("tinyshakespeare", None)] * 2
    assert asked == ["/input.txt"]
    assert files(data) == ["tinyshakespeare.txt"]
    assert corpus.is_present("tinyshakespeare")


@pytest.mark.parametrize(
    ("body", "status", "reason"), [(b"no", 200, "wrong checksum"), (b"", 404, "HTTPError")]
)
def test_a_bad_download_leaves_nothing_and_is_not_tried_again_soon(data, monkeypatch, body, status, reason):
    with server(body, status) as (url, asked):
        monkeypatch.setattr(corpus, "TINYSHAKESPEARE_URL", url)
        with pytest.raises(CorpusUnavailable) as caught:
            corpus.load()
        assert corpus.default_corpus_id() == ("python-reference", str(caught.value))
        assert len(asked) == 1
        monkeypatch.setattr(corpus, "RETRY_AFTER_S", -1.0)
        corpus.default_corpus_id()
        assert len(asked) == 2
    for part in (reason, url, str(data / "tinyshakespeare.txt"), "python-reference"):
        assert part in str(caught.value)
    assert files(data) == []


def test_a_refused_connection_and_a_silent_server_are_said_plainly(data, monkeypatch, original):
    with pytest.raises(CorpusUnavailable, match="ConnectionError"):
        corpus.load()
    monkeypatch.setattr(corpus, "_last_failure", None)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/input.txt"
        monkeypatch.setattr(corpus, "TINYSHAKESPEARE_URL", url)
        with pytest.raises(CorpusUnavailable, match="Timeout"):
            corpus.load()
    assert files(data) == []
    assert corpus.default_corpus_id()[0] == "python-reference"
    data.mkdir(exist_ok=True)
    (data / "tinyshakespeare.txt").write_bytes(original)  # placed by hand, it is used at once
    assert corpus.default_corpus_id() == ("tinyshakespeare", None)


# Python's own help topics, which are always there


def test_python_reference_needs_no_network():
    loaded = corpus.load("python-reference")
    assert 300_000 < loaded.characters < 1_000_000
    assert loaded.title == "Python reference"
    assert loaded.windows(128) > 50
    assert corpus.load("python-reference").sha256 == corpus.sha256_of("python-reference") == loaded.sha256
    assert corpus.listing() == [("python-reference", "Python reference")]


def test_the_default_never_raises(data):
    data.write_text("a file in its place")
    chosen, notice = corpus.default_corpus_id()
    assert chosen == "python-reference"
    assert notice.startswith(f"The data folder {data} failed")
    assert "failed" in refusal(case("bom_crlf"), "x.txt")
    assert corpus.listing() == [("python-reference", "Python reference")]


@pytest.mark.parametrize(
    "name",
    ["nosuch", "", "../x", "upload-../../etc/x", "upload-0123456789ABCDEF", "upload-0123456789abcdef\n"],
)
def test_an_unknown_id_is_refused(name):
    assert not corpus.is_present(name)
    with pytest.raises(CorpusError, match=r"^No corpus is called .* are allowed\.$"):
        corpus.load(name)


# Uploads: field case 01


def test_a_byte_order_mark_is_dropped_and_carriage_returns_stay(data):
    loaded = corpus.add_upload(case("bom_crlf"), "bom_crlf.txt")
    text = loaded.decode(loaded.ids)
    assert loaded.characters == len(text) == 61_076
    assert text.count("\r\n") == 1_076
    assert text.encode() == case("bom_crlf").removeprefix(codecs.BOM_UTF8)
    assert loaded.decode(loaded.encode(text)) == text
    assert loaded.id == f"upload-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (case("cp1252"), "byte 0x92 at offset 20008"),
        (codecs.BOM_UTF8 + b"abc\xff", "byte 0xff at offset 6"),
        ("words ".encode("utf-16-le") * 99, "byte 0x00 at offset 1"),
        (b"cut short \xe4\xb8", "byte 0xe4 at offset 10"),
        (b"\xed\xa0\x80", "byte 0xed at offset 0"),
        (b"", "empty"),
        (codecs.BOM_UTF8, "empty"),
        (b"x" * (20 * 1024 * 1024 + 1), "20,971,521 bytes"),
    ],
    ids=["cp1252", "bom-then-bad", "utf-16", "cut-short", "surrogate", "empty", "only-bom", "too-large"],
)
def test_what_is_not_text_is_refused_and_nothing_is_kept(data, content, said):
    assert said in refusal(content, "x.txt")
    assert files(data) == []


# Field case 03: the vocabulary and the held-out windows


@pytest.mark.parametrize(("name", "reached"), [("one_word", 259), ("zh300_lines", 561)])
def test_a_vocabulary_that_cannot_be_filled_names_what_is_reached(data, name, reached):
    assert f"a vocabulary of 1024: it reaches {reached}, so 256 to {reached} are" in refusal(case(name), "x")
    assert files(data) == []
    assert corpus.add_upload(case(name), "x", vocab_size=reached).vocab_size == reached


def test_300_distinct_characters_fill_1024(mixed):
    assert mixed.vocab_size == mixed.tokenizer.get_vocab_size() == len(mixed.token_bytes) == 1024
    assert sorted(mixed.token_bytes[:256]) == [bytes([value]) for value in range(256)]


@pytest.mark.parametrize("size", [200, 255, 65_537, 0, -1])
def test_an_impossible_vocabulary_is_refused(data, size):
    said = f"The vocabulary size is {size}: 256 (the single bytes, always needed) to 65536 are allowed."
    assert refusal(case("bom_crlf"), "x.txt", vocab_size=size) == said
    with pytest.raises(CorpusError):
        corpus.load("python-reference", vocab_size=size)


def test_1281_tokens_hold_out_one_window_and_1280_none(data):
    text = case("bom_crlf").removeprefix(codecs.BOM_UTF8)  # at 256 each byte is a token
    loaded = corpus.add_upload(text[:1281], "x", vocab_size=256)
    assert loaded.windows(128) == 1
    before = files(data)
    said = "its 1,280 tokens hold out no window of 128; 1,281 or more tokens are needed."
    assert said in refusal(text[:1280], "x", vocab_size=256)
    assert files(data) == before
    assert corpus.add_upload(text[:1280], "x", vocab_size=256, context_length=127).windows(127) == 1
    assert "The context length is 0" in refusal(text, "x", context_length=0)
    with pytest.raises(CorpusError, match="hold out no window of 129; 1,291 or more"):  # from the cache
        corpus.load(loaded.id, vocab_size=256, context_length=129)


@given(st.integers(0, 100_000), st.integers(1, 3000))
def test_windows_are_what_fits_into_the_held_out_tokens(tokens, context_length):
    some = Corpus("x", "x", "", 1, 256, "", np.zeros(tokens, dtype=np.uint16))
    assert len(some.train_ids) == int(0.9 * tokens)
    assert len(some.train_ids) + len(some.held_out_ids) == tokens
    assert some.windows(context_length) == max(0, len(some.held_out_ids) - 1) // context_length


# Field case 05: characters spread over tokens


def test_an_emoji_is_eleven_bytes_and_its_parts_are_shown_as_bytes(shakespeare):
    ids = shakespeare.encode(EMOJI)
    assert len(ids) == len(EMOJI.encode()) == 11
    assert shakespeare.pieces(ids)[:4] == [r"\xf0", r"\x9f", r"\x91", r"\xa9"]
    assert shakespeare.decode(ids) == EMOJI
    assert shakespeare.decode(ids[:5]) == "\N{WOMAN}" + r"\xe2"
    assert shakespeare.pieces(shakespeare.encode("the king\n")) == ["the", " king", "\n"]


def test_special_looking_tokens_are_plain_text(data):
    text = case("specials").decode()
    loaded = corpus.add_upload(case("specials"), "specials.txt")
    assert "<|endoftext|>" in text
    assert loaded.decode(loaded.ids) == text
    assert loaded.decode(loaded.encode("<|endoftext|><s></s>[MASK]")) == "<|endoftext|><s></s>[MASK]"
    assert (data / "uploads" / f"{loaded.id.removeprefix('upload-')}.txt").read_bytes() == case("specials")


@given(st.text())
def test_any_text_round_trips_and_the_library_agrees(mixed, text):
    ids = mixed.encode(text)
    assert mixed.decode(ids) == text
    assert ids == mixed.tokenizer.encode(text).ids
    assert mixed.tokenizer.decode(ids) == text


@given(st.lists(st.integers(0, 1023), max_size=40))
def test_any_tokens_can_be_shown_and_streamed(mixed, ids):
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    streamed = "".join(decoder.decode(mixed.token_bytes[i]) for i in ids) + decoder.decode(b"", final=True)
    assert streamed == mixed.decode(ids)
    assert "\ufffd" not in "".join(mixed.pieces(ids))


@settings(max_examples=300)
@given(st.text("ab'sé中1. \n\t\r\x1c\x85\xa0\u3000", max_size=60), st.integers(1, 10))
def test_encoding_in_chunks_is_encoding_the_whole(mixed, text, size):
    chunks, encode = list(tokenizer._chunks(text, size)), mixed.tokenizer.encode
    assert "".join(chunks) == text
    assert [i for chunk in chunks for i in encode(chunk).ids] == encode(text).ids


def test_half_a_character_cannot_be_encoded(mixed):
    with pytest.raises(CorpusError, match=r"half a character, U\+D83D, at position 2"):
        mixed.encode("ab\ud83d")


def test_a_very_long_word_does_not_hold_up_training():
    letters = np.random.default_rng(0).integers(97, 123, 200_000, dtype=np.uint8).tobytes()  # 12 s if whole
    assert corpus.add_upload(letters, "genome.txt", vocab_size=400).characters == 200_000


# What is kept, and what becomes of it when it is damaged


def test_an_upload_is_kept_under_its_digest_and_named_by_its_title(data):
    name = '../../etc/$5 <b>z</b> [a](b) a.b[1]: it\'s "\ud800".txt' + "x" * 200
    loaded = corpus.add_upload(case("zh_emoji"), name)
    assert loaded.title == name[:80].replace("\ud800", "?")
    assert corpus.listing() == [("python-reference", "Python reference"), (loaded.id, loaded.title)]
    assert corpus.is_present(loaded.id)
    stem = loaded.id.removeprefix("upload-")
    cached = [f"cache/{stem}-1024-{loaded.tokenizer_sha256[:8]}.npy", f"cache/{stem}-1024.tokenizer.json"]
    assert files(data) == [*cached, f"uploads/{stem}.json", f"uploads/{stem}.txt"]
    again = corpus.load(loaded.id)
    assert (again.title, again.sha256, again.characters) == (loaded.title, loaded.sha256, loaded.characters)
    assert np.array_equal(again.ids, loaded.ids)


def test_a_missing_or_altered_upload_is_said():
    with pytest.raises(CorpusError, match="not on this machine"):
        corpus.load("upload-0123456789abcdef")
    loaded = corpus.add_upload(case("zh_emoji"), "")
    assert loaded.title == loaded.id
    path = corpus._upload_path(loaded.id)
    path.with_suffix(".json").write_text("[")
    assert corpus.load(loaded.id).title == loaded.id
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(CorpusError, match="has changed"):
        corpus.load(loaded.id)


FOREIGN = json.dumps({"version": "1.0", "model": {"type": "BPE", "vocab": {"中": 0}, "merges": []}}).encode()


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:128] + bytes(len(content) - 128),
        lambda content: content[: len(content) // 2],
        lambda content: FOREIGN,
        lambda content: b"",
    ],
    ids=["zeros", "shorter", "foreign", "empty"],
)
@pytest.mark.parametrize("pattern", ["*.npy", "*.json", "*"])
def test_a_damaged_cache_file_is_made_again(data, damage, pattern):
    loaded = corpus.add_upload(case("bom_crlf"), "x.txt")
    expected = {name: (data / name).read_bytes() for name in files(data)}
    for file in (data / "cache").glob(pattern):
        if file.suffix != ".lock":
            file.write_bytes(damage(file.read_bytes()))
    assert corpus.load(loaded.id).tokenizer_sha256 == loaded.tokenizer_sha256
    assert {name: (data / name).read_bytes() for name in files(data)} == expected


def test_a_full_disk_is_one_sentence_and_leaves_no_half(data, monkeypatch):
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    assert "No space left on device" in refusal(case("bom_crlf"), "x.txt")
    assert not [name for name in files(data) if not name.endswith(".tokenizer.json")]


def test_several_processes_make_one_cache_and_none_loads_torch(tmp_path):
    script = (
        "import sys; from engine.data import corpus; c = corpus.load('python-reference', 512);"
        "assert 'torch' not in sys.modules and 'pooch' not in sys.modules; print(c.tokens, int(c.ids.sum()))"
    )
    environment = os.environ | {"ATTENTION_LAB_HOME": str(tmp_path)}
    command, pipe = [sys.executable, "-c", script], subprocess.PIPE
    started = [subprocess.Popen(command, cwd=paths.ROOT, env=environment, stdout=pipe) for _ in range(3)]
    printed = {process.communicate(timeout=60)[0] for process in started}
    assert [process.returncode for process in started] == [0, 0, 0]
    assert len(printed) == 1
    assert len(files(tmp_path / "data")) == 2
