"""The reader's own attention, run apart from the app."""

import streamlit as st

from engine.sandbox import judge, process
from engine.sandbox.judge import Verdict
from lab import bench
from lab.settings import Settings, hold
from lab.shell import frame
from lab.words import NBSP, plain

# One bug, for the reader to find: it divides by the square root of T. Where T equals d nothing shows.
STARTER = '''import math
import torch


def attention(q, k, v, causal):
    """q, k, v: (B, T, d). Returns (B, T, d)."""
    B, T, d = q.shape
    scores = q @ k.transpose(-2, -1)
    scores = scores / math.sqrt(scores.shape[-1])
    if causal:
        ahead = torch.ones(T, T, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(ahead, float("-inf"))
    return scores.softmax(dim=-1) @ v
'''


def draw(settings: Settings) -> None:
    """The code, its check, and what became of it; where this lab runs none, why."""
    address = st.get_option("server.address")
    if not process.allowed(address):
        st.markdown(
            f"Running pasted code is off: this lab listens beyond this machine (server.address is "
            f"{plain(address or 'not set')}), so whoever opens this page could run code here. If you trust "
            f"them all, start the lab with "
            f"`{process.SWITCH}=1` in its environment.",
            width=frame.MEASURE,
        )
        return
    st.markdown(
        f"A function of q, k and v, each of shape (B, T, d), and of `causal`. It runs in a process of its "
        f"own, with 5{NBSP}s and 1.5{NBSP}GB, on inputs that grow from a single token, and is compared "
        f"with a reference. What stands here has one bug: find it, or paste yours.",
        width=frame.MEASURE,
    )
    key, answered = settings.key("code"), settings.key("verdict")
    hold(key, STARTER)
    with st.container(horizontal=True, gap="medium"):
        with st.container(width=640, key="code"):
            code = st.text_area("Your attention", key=key, height=360, persist_state="session")
        with st.container(width=448):
            pressed = st.button("Check", key=settings.key("check"), width=bench.BUTTON)
            place = st.empty()
            if pressed:
                place.caption("Loading torch, then running it for at most 10 s")
                st.session_state[answered] = (code, judge.check(code))
            of, found = st.session_state.get(answered, (code, None))
            with place.container():
                if found is None:
                    st.caption("Nothing has been checked yet.")
                elif of != code:
                    st.caption("The code has changed since it was checked. Check again.")
                else:
                    _verdict(found)


def _verdict(found: Verdict) -> None:
    """What became of pasted code: one sentence, then the smallest failing input."""
    color = {"right": "green", "busy": "orange"}.get(found.outcome, "red")
    st.markdown(f":{color}[{plain(found.sentence)}]")
    if found.smallest:
        share = f"{len(found.failed)} of {len(found.tried)} inputs fail."
        st.caption(f"{share} The smallest, {plain(found.failed[0])}:")
        st.code(found.smallest, "python", wrap_lines=True)
    if found.printed:
        st.caption("It printed, standard error included, cut after 2,000 characters:")
        st.code(found.printed, None, wrap_lines=True, height=120)
    if found.outcome != "busy":
        st.caption(f"Answered in {found.seconds:.1f} s by a process of its own, which has ended.")
