"""Where a model's parameters and its work are, counted from its configuration alone. Imports no torch.

Source: chapter, "the block", where the parameters are.
"""

from engine.models.config import WITHOUT_HEADS, ModelConfig

# The parts that stand in every block; the others are there once.
IN_BLOCKS = ("W_Q", "W_K", "W_V", "W_O", "score scale", "learned matrix", "feed-forward", "norms")
PARTS = ("token table", "position table", *IN_BLOCKS, "final norm", "unembedding")
_PROJECTED = {
    "attention": ("W_Q", "W_K", "W_V"),
    "unmasked": ("W_Q", "W_K", "W_V"),
    "query-key": ("W_Q", "W_K"),
    "raw": (),
}


def parameters(config: ModelConfig) -> dict[str, int]:
    """Learned numbers by part, in the order of ``PARTS``, over all blocks; parts without any are left out.

    A tied unembedding has none of its own. Biases count with the matrix that they belong to.
    """
    width, block = config.d_model, block_parameters(config)
    counted = {
        "token table": config.vocab_size * width,
        "position table": config.max_positions * width * (config.positions == "learned"),
        **{part: config.n_layer * number for part, number in block.items()},
        "final norm": 2 * width * (config.connection == "pre-norm"),
        "unembedding": config.vocab_size * (width * (not config.tied) + config.unembedding_bias),
    }
    return {part: counted[part] for part in PARTS if counted.get(part)}


def block_parameters(config: ModelConfig) -> dict[str, int]:
    """The same of one block, whether the model has one or not."""
    width, counted = config.d_model, dict[str, int]()
    if config.mixer in _PROJECTED:
        joined = config.n_head * config.effective_d_head
        counted |= dict.fromkeys(_PROJECTED[config.mixer], joined * (width + config.qkv_bias))
        if config.output_projection:
            counted["W_O"] = width * (joined + config.output_bias)
        counted["score scale"] = {"learned": config.n_head, "qk-norm": 2 * config.effective_d_head}.get(
            config.score_scale, 0
        )
    if config.mixer == "matrix":
        counted["learned matrix"] = config.max_positions**2
    if config.d_ff:
        counted["feed-forward"] = 2 * width * config.d_ff + config.d_ff + width
    if config.connection in ("pre-norm", "post-norm"):
        counted["norms"] = 2 * width * ((config.mixer != "none") + (config.d_ff > 0))
    return {part: counted[part] for part in IN_BLOCKS if counted.get(part)}


def total(config: ModelConfig) -> int:
    """All learned numbers of a model."""
    return sum(parameters(config).values())


def feed_forward_share(config: ModelConfig) -> float | None:
    """The feed-forward's share of a block's parameters; None where a block has none."""
    block = block_parameters(config)
    return block.get("feed-forward", 0) / sum(block.values()) if block else None


def multiplications(config: ModelConfig, context_length: int) -> int:
    """Products of two numbers that one token of a forward pass takes, with the whole window in sight.

    Matrices count once a number; biases, norms and tables are added or looked up, not multiplied.
    Source: Kaplan et al. 2020, section 2.1.
    """
    width = config.d_model
    joined = width if config.mixer in WITHOUT_HEADS else config.n_head * config.effective_d_head
    projections = len(_PROJECTED.get(config.mixer, ())) + (
        config.output_projection and config.mixer in _PROJECTED
    )
    looks = {"none": 0, "average": 1, "matrix": 1}.get(config.mixer, 2)  # scores, and the mixture
    block = projections * joined * width + 2 * width * config.d_ff + looks * context_length * joined
    return config.n_layer * block + config.vocab_size * width
