"""What a model without a mask writes, beside one with it."""

import streamlit as st

from engine.chapter.experiments import MASK
from engine.probes.registry import LEAK_SAMPLE
from lab import probes, weights
from lab.settings import Setting, Settings
from lab.shell.frame import dot
from lab.words import plain, quantity

WRITING = "Writing 80 tokens, and reading the held-out text"


def draw(prompt: Setting[str], settings: Settings) -> None:
    """A prompt, and what the reader's own models make of it."""
    with probes.section(
        "What does the model without a mask write?",
        "Writing, no model has the answer before it: the next token does not exist yet.",
        "write",
        below=True,
    ):
        prompt.draw(width=400)
        asked = probes.pressed("Write", settings.key("write"), prompt.value, 2 * LEAK_SAMPLE.seconds)
    probes.outdated(asked, prompt.value)
    if asked is not None:
        _samples(asked)


def _samples(prompt: str) -> None:
    """What the reader's own newest run of each variant writes, and what it is worth without the answer."""
    with st.container(horizontal=True):
        for name in MASK.variants:
            with st.container(width=probes.WIDTH):
                st.markdown(f"{dot(name)} **{plain(MASK.variant(name).title)}**")
                one = weights.own(MASK.variant(name).config, any_text=True)
                if one is None or one.run is None:
                    st.markdown("You have not trained this model yet. Train it above first.")
                    continue
                place, spec = st.empty(), one.run.spec
                arguments = {"weights": one.path, "corpus_id": spec.corpus, "prompt": prompt, "seed": 0}
                if found := probes.attempt(place, LEAK_SAMPLE, WRITING, **arguments):
                    st.code(found.text, language=None, wrap_lines=True)
                    measured = one.run.measured.get("validation_perplexity")
                    st.markdown(
                        f"Held-out perplexity, as measured in training: **{quantity(measured)}**. Of the "
                        f"token after each window, which it cannot see: "
                        f"**{quantity(found.blind_perplexity)}**."
                    )
                tokens = f"{spec.config.vocab_size:,}"
                guess = f"A guess among all {tokens} tokens alike would have {tokens}."
                st.caption(f"Weights: {plain(one.whose)}. {guess}")
