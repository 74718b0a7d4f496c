"""The command line: ``python -m engine list | show | run | reproduce | prepare``.

Exit codes: 0 done, 1 a run failed (the reason on stderr), 2 wrong arguments (one sentence).
"""

import argparse
import json
import sqlite3
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from engine import commands, paths
from engine.experiments import EXPERIMENTS, parse_seeds
from engine.measurements import MEASUREMENTS, known


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One sentence and exit 2, without the usage that hides it."""
        self.exit(2, f"{message.rstrip('.')}. See: {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.command(options)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
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

    def add(name: str, text: str, command: Any) -> argparse.ArgumentParser:
        sub = commands_of.add_parser(name, help=text, description=text)
        sub.set_defaults(command=command)
        return sub

    ids = f"one of: {', '.join([*EXPERIMENTS, *MEASUREMENTS])}"
    add("list", "name every experiment, its variants and budgets", _list)

    show = add("show", "print the chapter's figures beside the shipped reference", _show)
    show.add_argument("id", help=ids)
    form = show.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON document on stdout, nothing else")
    form.add_argument("--markdown", action="store_true", help="the table that the README prints")

    budgets = f"quick (a minute, the default) or chapter; the same for {', '.join(MEASUREMENTS)}"
    run = add("run", "train an experiment and print what was measured", _run)
    run.add_argument("id", help=ids)
    run.add_argument("--budget", default="quick", help=budgets)
    run.add_argument("--seeds", default="0", help="whole numbers, separated by commas (default 0)")
    run.add_argument("--variant", action="append", help="only this variant; may be given more than once")
    run.add_argument("--corpus", help="tinyshakespeare, python-reference or an upload's id")
    run.add_argument("--json", action="store_true", help="one JSON document on stdout, nothing else")

    reproduce = add(
        "reproduce", "train every experiment at the chapter's budget, skipping what is done", _reproduce
    )
    reproduce.add_argument(
        "--write-reference",
        action="store_true",
        help="make the shipped reference of it, and of what needs no training",
    )

    add("prepare", "fetch the text, make tokens of it, time a few steps", _prepare)
    return parser


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
    shown = commands.show(known(options.id))
    if options.json:
        print(json.dumps(shown, allow_nan=False))
    else:
        print(commands.show_markdown(shown) if options.markdown else commands.show_text(shown))
    return 0


def _run(options: argparse.Namespace) -> int:
    document, failures = commands.run(
        options.id, options.budget, parse_seeds(options.seeds), options.variant, options.corpus
    )
    print(json.dumps(document, allow_nan=False) if options.json else commands.run_text(document))
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


def _reproduce(options: argparse.Namespace) -> int:
    failures = commands.reproduce(write_reference=options.write_reference)
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


def _prepare(_: argparse.Namespace) -> int:
    commands.prepare()
    return 0


if __name__ == "__main__":
    sys.exit(main())
