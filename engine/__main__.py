"""The command line: ``python -m engine list | show | run | reproduce | prepare | bench | probe``.

Exit codes: 0 done, 1 a run failed (the reason on stderr), 2 wrong arguments (one sentence).
"""

import argparse
import json
import os
import sqlite3
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from engine import commands
from engine.chapter import report
from engine.chapter.experiments import EXPERIMENTS, parse_seeds
from engine.chapter.measurements import MEASUREMENTS, known
from engine.probes import registry, wire
from engine.probes.registry import PROBES
from engine.system import paths
from engine.system.errors import InvalidInput, LabError, Unavailable


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One sentence and exit 2, without the usage that hides it."""
        self.exit(2, f"{message.rstrip('.')}. See: {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.command(options)
        sys.stdout.flush()
    except LabError as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:  # as of ``| head``, which has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the last flush complains
        return 1
    except (OSError, sqlite3.OperationalError) as error:
        print(f"the data folder {paths.HOME} cannot be used: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m engine", description="Attention Lab's experiments from the command line."
    )
    commands_of = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)
    add = partial(_add, commands_of)
    ids = f"one of: {', '.join([*EXPERIMENTS, *MEASUREMENTS])}"
    add("list", "name every experiment, its variants and budgets", _list)

    show = add("show", "print the chapter's figures beside the shipped reference", _show)
    show.add_argument("id", nargs="?", help=f"{ids}; all of them by default")
    form = show.add_mutually_exclusive_group()
    _add_json(form)
    form.add_argument("--markdown", action="store_true", help="the table that docs/measured.md prints")

    budgets = f"quick (a minute, the default) or chapter; the same for {', '.join(MEASUREMENTS)}"
    run = add("run", "train an experiment and print what was measured", _run)
    run.add_argument("id", help=ids)
    run.add_argument("--budget", default="quick", help=budgets)
    run.add_argument("--seeds", default="0", help="whole numbers, separated by commas (default 0)")
    run.add_argument("--variant", action="append", help="only this variant; may be given more than once")
    text = "of the products in training: float32 (the default) or bfloat16"
    run.add_argument("--precision", default="float32", help=text)
    run.add_argument("--corpus", help="tinyshakespeare, python-reference, an upload's or a language's id")
    _add_json(run)

    text = "train every experiment at the chapter's budget, skipping what is done"
    reproduce = add("reproduce", text, _reproduce)
    text = "make the shipped reference of it, and of what needs no training"
    reproduce.add_argument("--write-reference", action="store_true", help=text)

    text = "measure one thing on fixed weights; prints one JSON document"
    probe = add("probe", text, _probe)
    probe.add_argument("name", metavar="NAME", help=f"one of: {', '.join(PROBES)}")
    text = "its arguments, as one JSON object: names of weights are paths (default {})"
    probe.add_argument("--json", default="{}", metavar="ARGUMENTS", help=text)

    add("prepare", "fetch the text, make tokens of it, time a few steps", _prepare)
    text = "measure this machine: a training step, a sweep, the n x n wall, a card; takes some minutes"
    _add_benchmarks(commands_of.add_parser("bench", help=text, description=text))
    return parser


def _add(commands_of: Any, name: str, text: str, command: Any) -> argparse.ArgumentParser:
    sub: argparse.ArgumentParser = commands_of.add_parser(name, help=text, description=text)
    sub.set_defaults(command=command)
    return sub


def _add_json(command: Any) -> None:
    command.add_argument("--json", action="store_true", help="one JSON document on stdout, nothing else")


def _add_benchmarks(parser: argparse.ArgumentParser) -> None:
    benchmarks = parser.add_subparsers(required=True, metavar="BENCHMARK", parser_class=_Parser)

    def add(name: str, text: str, command: Any) -> argparse.ArgumentParser:
        sub = _add(benchmarks, name, text, command)
        _add_json(sub)
        return sub

    train = add("train", "the speed of a training step, beside others that do the same", _bench_train)
    train.add_argument("--layers", default="1,12", help="whole numbers, separated by commas (default 1,12)")
    train.add_argument("--batch", type=int, default=64, help="windows of 128 tokens a step (default 64)")
    train.add_argument("--threads", type=int, help="of torch (default: all usable cores)")
    train.add_argument("--rounds", type=int, default=12, help="turns of each that are measured (default 12)")
    train.add_argument("--peer", type=Path, metavar="DIR", help="a checkout of nanoGPT, measured beside ours")
    train.add_argument("--compile", action="store_true", help="also the plain loop under torch.compile")

    sweep = add("sweep", "a sweep's wall time, its runs at once or one after another", _bench_sweep)
    sweep.add_argument("--runs", type=int, default=8, help="of the sweep (default 8)")
    sweep.add_argument("--steps", type=int, default=16, help="of each run (default 16: some seconds)")

    memory = add("memory", "the n x n wall: one attention layer, n doubling to out of memory", _bench_memory)
    memory.add_argument("--budget-gb", type=float, metavar="G", help="my card has so much (2^30 bytes each)")
    memory.add_argument("--to", type=int, default=4096, metavar="N", help="tokens at most (default 4096)")
    text = "explicit, fused, chunked or projections; may be given more than once (default: all)"
    memory.add_argument("--implementation", action="append", metavar="NAME", help=text)
    memory.add_argument("--width", type=int, default=512, help="d_model (default 512)")
    memory.add_argument("--heads", type=int, default=8, help="that share the width (default 8)")
    memory.add_argument("--batch", type=int, default=1, help="sequences (default 1)")
    memory.add_argument("--dtype", default="float32", help="or bfloat16, float16, float64")
    memory.add_argument("--block", type=int, default=256, help="query rows of chunked (default 256)")
    memory.add_argument("--backward", action="store_true", help="the gradients, too")
    memory.add_argument("--no-causal", action="store_true", help="each token sees the future, too")
    memory.add_argument("--device", help="cpu, cuda or mps (default: what is here)")
    memory.add_argument("--threads", type=int, help="of torch (default: all usable cores)")
    text = "hold an NVIDIA card against the chapter's table: to 16,384 tokens at 8 GB, about two minutes"
    memory.add_argument("--gpu-check", action="store_true", help=text)

    gpu = add("gpu-check", "all that an accelerator has to show, within ten minutes", _bench_gpu_check)
    gpu.add_argument("--device", help="cuda or mps (default: what is here); cpu with --rehearse only")
    gpu.add_argument("--rehearse", action="store_true", help="every section in tiny sizes, on any machine")
    gpu.add_argument("--peer", type=Path, metavar="DIR", help="a checkout of nanoGPT, measured beside ours")
    gpu.add_argument("--minutes", type=float, default=10.0, help="for everything (default 10)")
    text = "write the document there, after every section: what is measured is not lost"
    gpu.add_argument("--out", type=Path, metavar="FILE", help=text)


def _list(_: argparse.Namespace) -> int:
    for trained in EXPERIMENTS.values():
        print(f"{trained.id}: {trained.question}")
        print(f"  variants: {', '.join(trained.variants)}")
        print(f"  budgets:  {', '.join(f'{n} ({b.steps:,} steps)' for n, b in trained.budgets.items())}")
    for measurement in MEASUREMENTS.values():
        print(f"{measurement.id}: {measurement.question}")
        print(f"  variants: {', '.join(measurement.variants)}")
        print("  budgets:  quick and chapter are the same, nothing is trained")
    return 0


def _show(options: argparse.Namespace) -> int:
    form = report.markdown if options.markdown else report.text
    documents = [
        report.show(known(name)) for name in ([options.id] if options.id else [*EXPERIMENTS, *MEASUREMENTS])
    ]
    if options.json:
        print(json.dumps(documents[0] if options.id else documents, allow_nan=False))
    else:
        print("\n\n".join(map(form, documents)))
    return 0


def _run(options: argparse.Namespace) -> int:
    document, failures = commands.run(
        options.id,
        options.budget,
        parse_seeds(options.seeds),
        options.variant,
        options.corpus,
        options.precision,
    )
    _print(document, options, commands.run_text)
    return _exit_code(failures)


def _reproduce(options: argparse.Namespace) -> int:
    return _exit_code(commands.reproduce(write_reference=options.write_reference))


def _prepare(_: argparse.Namespace) -> int:
    commands.prepare()
    return 0


def _probe(options: argparse.Namespace) -> int:
    probe = registry.known(options.name)
    try:
        arguments = json.loads(options.json)
    except ValueError as error:
        raise InvalidInput(f"the arguments are no JSON: {error}.") from error
    import torch

    torch.set_num_threads(1)
    print(wire.dumps(probe.call(arguments)).decode())
    return 0


def _bench_train(options: argparse.Namespace) -> int:
    from engine import benchmarks

    benchmarks.keep_freed_memory()
    from engine.benchmarks import train

    document = train.bench(
        layers=train.parse_layers(options.layers),
        batch_size=options.batch,
        threads=options.threads,
        rounds=options.rounds,
        peer=options.peer,
        compile_plain=options.compile,
    )
    _print(document, options, train.text)
    return 0


def _bench_sweep(options: argparse.Namespace) -> int:
    from engine.benchmarks import sweep

    try:
        document = sweep.bench(runs=options.runs, steps=options.steps)
    except sweep.RunFailed as failure:
        return _exit_code([failure])
    _print(document, options, sweep.text)
    return 0


def _bench_memory(options: argparse.Namespace) -> int:
    from engine.benchmarks import memory
    from engine.memory_wall.setting import Setting

    setting = Setting(
        d_model=options.width,
        n_head=options.heads,
        batch=options.batch,
        dtype=options.dtype,
        causal=not options.no_causal,
        backward=options.backward,
        block=options.block,
    )
    try:
        document = memory.bench(
            setting=setting,
            to=options.to,
            implementations=memory.parse_implementations(options.implementation),
            budget_gb=options.budget_gb,
            kind=options.device,
            threads=options.threads,
            gpu_check=options.gpu_check,
        )
    except Unavailable as error:
        return _exit_code([error])
    _print(document, options, memory.text)
    return _exit_code(memory.failures(document))


def _bench_gpu_check(options: argparse.Namespace) -> int:
    from engine.benchmarks import gpu_check

    document = gpu_check.bench(
        kind=options.device,
        rehearse=options.rehearse,
        peer=options.peer,
        minutes=options.minutes,
        out=options.out,
    )
    _print(document, options, gpu_check.text)
    return 1 if gpu_check.failures(document) else 0


def _print(
    document: dict[str, Any], options: argparse.Namespace, text: Callable[[dict[str, Any]], str]
) -> None:
    print(json.dumps(document, allow_nan=False) if options.json else text(document))


def _exit_code(failures: Sequence[object]) -> int:
    """Name the failures on stderr. Returns 1 where there are some."""
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
