"""The n x n wall: bytes and time of one attention layer against the number of tokens, to out of memory.

setting.py     the layer's sizes, the closed form, the chapter's table; no torch
attention.py   four ways to write the layer: explicit, fused, chunked, projections
live_bytes.py  the peak of live tensor bytes, with a budget that refuses
predict.py     the same code under fake tensors: bytes of any n, the longest n that fits; a probe
predictions.py its answers; no torch
meters.py      peak bytes and milliseconds on this device
worker.py      one n of one implementation; a process
verdict.py     which of its ends is the wall; no torch
process.py     a worker seen from outside: loading, guard, cancelling; no torch
plan.py        what to measure, its rows, their ratios and slopes; no torch
sweep.py       rows as they come; no torch. ``engine/runs/measurer.py`` makes a run of them
"""
