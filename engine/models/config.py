"""The shape of one model, as data. Imports no torch, so pages can read it.

A configuration is a value: frozen, comparable, and checked when it is made, so a bad size is refused
before a run exists.
"""

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self, get_args

from engine.system.errors import InvalidInput
from engine.system.numbers import check_whole

Mixer = Literal["none", "average", "matrix", "raw", "query-key", "attention", "unmasked"]
WITHOUT_HEADS = ("none", "average", "matrix")
Connection = Literal["replace", "add", "pre-norm", "post-norm"]
Positions = Literal["none", "learned", "sinusoidal", "rope", "alibi"]
WITHOUT_TABLES = ("rope", "alibi")  # schemes that act on queries, keys or scores
ScoreScale = Literal["sqrt", "none", "width", "learned", "qk-norm"]

MAX_WIDTH = 16_384
MAX_VOCAB = 1_000_000
MAX_POSITIONS = 1_048_576
MAX_LAYERS = 1_000
MAX_DROPOUT = 0.95


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Everything that decides a model's parameters and its computation.

    Fields (the field's usual names):
        vocab_size: V, rows of the token table and width of the unembedding.
        d_model: D, width of the residual stream.
        n_layer: blocks. A block of ``mixer="none"`` and ``d_ff=0`` computes nothing, which is the
            no-context model: embed, then unembed.
        mixer: what moves information between positions; beside the uniform average and attention: one learned
            matrix, raw x.x scores, attention without W_V, and, for the leak test, attention without its mask.
        connection: how every sublayer meets its input (see ``block.py``); pre-norm adds a final norm.
        positions, max_positions: the position scheme, and the rows of a learned table.
        rope_base, rope_stretch: RoPE's base, and what positions are divided by before they turn anything;
            raising either makes a trained model read further (NTK-aware and linear rescaling).
        n_head, d_head: H and K; ``d_head=None`` means ``d_model / n_head``.
        score_scale: what q.k is divided by: the square root of d_head, nothing, d_head itself, or a learned
            number a head that starts at the square root; or the square root after q and k were normalised.
        output_projection: W_O after the heads are joined.
        qkv_bias, output_bias, unembedding_bias: the biases that textbooks differ in.
        d_ff: hidden width of the feed-forward; 0 is none.
        tied: the unembedding is the token table.
        dropout: share of numbers put to zero in training: of the embeddings' sum, of attention weights and
            of every sublayer's output.

    Raises InvalidInput: when a field is of the wrong kind or out of range, or two fields disagree; the
        message gives what was got and what is allowed.
    """

    vocab_size: int = 1024
    d_model: int = 128
    n_layer: int = 1
    mixer: Mixer = "none"
    connection: Connection = "replace"
    positions: Positions = "none"
    max_positions: int = 128
    rope_base: float = 10_000.0
    rope_stretch: float = 1.0
    n_head: int = 1
    d_head: int | None = None
    score_scale: ScoreScale = "sqrt"
    output_projection: bool = False
    qkv_bias: bool = False
    output_bias: bool = True
    d_ff: int = 0
    unembedding_bias: bool = True
    tied: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name, low, high in (
            ("vocab_size", 1, MAX_VOCAB),
            ("d_model", 1, MAX_WIDTH),
            ("n_layer", 0, MAX_LAYERS),
            ("max_positions", 1, MAX_POSITIONS),
            ("n_head", 1, MAX_WIDTH),
            ("d_ff", 0, 4 * MAX_WIDTH),
        ):
            check_whole(name, getattr(self, name), low, high)
        if self.d_head is not None:
            check_whole("d_head", self.d_head, 1, MAX_WIDTH)
        for name, kind in (
            ("mixer", Mixer),
            ("connection", Connection),
            ("positions", Positions),
            ("score_scale", ScoreScale),
        ):
            if getattr(self, name) not in get_args(kind):
                allowed = ", ".join(get_args(kind))
                raise InvalidInput(f"{name} is {getattr(self, name)!r}; allowed: {allowed}.")
        for name, least, most in (
            ("rope_base", 1.0, 1e12),
            ("rope_stretch", 1.0, 1e6),
            ("dropout", 0.0, MAX_DROPOUT),
        ):
            object.__setattr__(self, name, _number(name, getattr(self, name), least, most))
        for name in ("output_projection", "qkv_bias", "output_bias", "unembedding_bias", "tied"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidInput(f"{name} is {getattr(self, name)!r}; allowed: true or false.")
        if self.mixer not in WITHOUT_HEADS:
            if self.d_head is None and self.d_model % self.n_head:
                raise InvalidInput(
                    f"d_model {self.d_model} does not divide into {self.n_head} heads; "
                    f"choose n_head so that it does, or set d_head."
                )
            joined = self.n_head * self.effective_d_head
            copies_tokens = self.mixer in ("raw", "query-key")
            if (copies_tokens or not self.output_projection) and joined != self.d_model:
                raise InvalidInput(
                    f"without W_V or an output projection the joined heads must be d_model wide; got "
                    f"{self.n_head} heads of {self.effective_d_head} = {joined}, d_model {self.d_model}."
                )
        if self.positions in WITHOUT_TABLES and self.mixer in WITHOUT_HEADS:
            raise InvalidInput(f"{self.positions} acts on attention scores; the mixer {self.mixer} has none.")
        if self.positions == "rope" and self.effective_d_head % 2:
            odd = self.effective_d_head
            raise InvalidInput(f"RoPE turns pairs of numbers; a head of {odd} has an odd one.")
        if self.tied and self.unembedding_bias:
            raise InvalidInput("a tied unembedding has no bias of its own; set unembedding_bias to false.")

    @property
    def effective_d_head(self) -> int:
        """d_head, or d_model / n_head when it is not set."""
        return self.d_head if self.d_head is not None else self.d_model // self.n_head

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values."""
        return asdict(self)

    def changes(self) -> dict[str, Any]:
        """The fields that differ from the root's: what names a configuration when new fields are added."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of ``to_dict``.

        Raises InvalidInput: when a field is unknown, so that a newer lab's file is never half understood.
        """
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(data) - known):
            raise InvalidInput(f"unknown fields {', '.join(unknown)}; known: {', '.join(sorted(known))}.")
        return cls(**data)


def _number(name: str, value: object, low: float, high: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidInput(f"{name} is {value!r}; allowed: a number from {low:g} to {high:g}.")
    return float(value)  # 1 and 1.0 are one configuration, with one digest
