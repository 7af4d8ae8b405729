"""The command ``isthmus run``, parsed without the packages that other commands need."""

import argparse
import dataclasses
import sys
from difflib import get_close_matches
from importlib.util import find_spec
from typing import NoReturn

from isthmus.launch.ranks import Ranks
from isthmus.launch.run import Job, JobError
from isthmus.stand_ins.provide import PROVIDED
from isthmus_common.options import tables
from isthmus_common.package_folders import PACKAGES

# --nproc runs scripts and modules only.
USAGE = """\
isthmus run [options] {script.py | -m module | -c command} [arguments]
       isthmus run [options] {torchrun ... | accelerate launch ...}
       isthmus run --nproc N [--nnodes M ...] [options] {script.py | -m module} [arguments]"""
DESCRIPTION = """\
Run a program written for CUDA on the accelerator of this machine, without changing it.

With --nproc it runs as several ranks, with the output of each in a file. If the job fails, the rank that failed
first is named, with its traceback, and its exit status is that of the job."""
EXAMPLES = """\
examples:
  isthmus run train.py --lr 1e-4
  isthmus run --nproc 2 train.py
  isthmus run -m pkg.train
  isthmus run --nnodes 2 --nproc 8 --rdzv-endpoint node0:29500 train.py  (on both nodes)
  isthmus run torchrun --nproc-per-node 2 train.py
  isthmus run accelerate launch train.py"""
_PLACEHOLDERS = {"integer": "N", "size": "SIZE", "text": "TEXT", "path": "FOLDER"}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Report wrong usage in one line; exit with status 2."""
        self.exit(2, f"isthmus: {message.removeprefix('argument ')}; see `isthmus run --help`\n")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line: flags of the options of the installed packages, and of ranks."""
    found = _Parser(
        "isthmus run",
        usage=USAGE,
        description=DESCRIPTION,
        epilog=EXAMPLES,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for table in tables():
        group = found.add_argument_group(table.title)
        for option in table.options:
            if option.flag is not None:
                default = f"; default: {option.default}" if option.default else ""
                text = option.meaning.replace("; empty:", "; default:") + default
                if option.kind == "switch":
                    group.add_argument(option.long_flag, action="store_const", const="1", help=_help(text))
                else:
                    name = option.flag or _PLACEHOLDERS[option.kind]
                    group.add_argument(option.long_flag, metavar=name, help=_help(text))
    group = found.add_argument_group("Ranks")
    for each in dataclasses.fields(Ranks):
        row = each.metadata
        names = row["names"] or ["--" + each.name.replace("_", "-")]
        kind = (
            {"type": row["type"], "metavar": row["metavar"]} if row["metavar"] else {"action": "store_true"}
        )
        group.add_argument(*names, dest=each.name, default=each.default, help=_help(row["help"]), **kind)
    group = found.add_argument_group("Others")
    provided = f"modules to provide if the real ones are absent, by comma: {', '.join(PROVIDED)}"
    group.add_argument("--provide", metavar="M", default="", help=_help(provided))
    explain = "print every patch and every rewriting rule instead of running"
    group.add_argument("--explain", action="store_true", help=_help(explain))
    return found


def _help(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}.".replace("%", "%%")


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return the values of the flags, and the program with its own arguments; exit with 2 on wrong usage."""
    command, index = parser(), 0
    while (word := "".join(arguments[index : index + 1])).startswith("-") and word not in ("-m", "-c", "--"):
        flag = command._option_string_actions.get(word)
        index += 1 if flag is None or flag.nargs == 0 else 2
    found, unknown = command.parse_known_args(arguments[:index])
    if unknown:
        command.error(_unknown(unknown[0], [*command._option_string_actions]))
    found.program = arguments[index + (word == "--") :]
    return found


def main(arguments: list[str]) -> int:
    """Run the command; return the exit status if it does not become the job."""
    found = parse(arguments)
    values = vars(found)
    ranks = Ranks(**{each.name: values[each.name] for each in dataclasses.fields(Ranks)})
    given = {o.name: values[o.name] or "" for t in tables() for o in t.options if o.flag is not None}
    try:
        if not ranks.nproc and ranks != Ranks():
            raise JobError("the options of ranks need --nproc N, the number of ranks on each node")
        if found.explain:
            from isthmus.shim.explain import explanation

            print(explanation())
        else:
            Job(found.program, given, ranks if ranks.nproc else None, found.provide).start()
    except (JobError, RuntimeError) as error:
        print(f"isthmus: {error}", file=sys.stderr)
        return 2 if isinstance(error, JobError) else 1
    return 0


def _unknown(word: str, flags: list[str]) -> str:
    """Say that there is no such flag, with similar ones, and the packages whose flags are unknown."""
    flag = word.partition("=")[0]
    alike = get_close_matches(flag, flags, 1)
    absent = [name.replace("_", "-") for name in PACKAGES if find_spec(name) is None]
    hint = f", did you mean {alike[0]}?" if alike else ""
    missing = f" (not installed: {', '.join(absent)})" if absent else ""
    return f"{flag}: no such option{hint or missing}"
