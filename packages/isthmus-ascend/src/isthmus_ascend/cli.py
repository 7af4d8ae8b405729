"""The command ``isthmus ascend``."""

import os
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from isthmus_ascend.environment import LIBRARIES, NotBuilt, set_env, variables
from isthmus_common.exits import fail


class Fault(StrEnum):
    """A failure to inject."""

    LOST = "lost"
    ECC = "ecc"
    MEMORY = "memory"
    CORE = "core"
    OOM = "oom"
    HANG = "hang"
    LINK = "link"


app = typer.Typer(
    help="An Ascend machine without a card: run torch_npu, unmodified, on the host chip.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
# Not -m: torch_npu imports the module before it runs.
TORCHRUN = "from torch.distributed.run import main; main()"
# The program's own options are not ours.
PASS_ON = {"allow_interspersed_args": False, "ignore_unknown_options": True}


Program = Annotated[
    list[str],
    typer.Argument(
        metavar="script.py | -m module | -c code [arguments]",
        help="The program of Python and its own arguments.",
        show_default=False,
    ),
]
ProgramOrCommand = Annotated[
    list[str],
    typer.Argument(
        metavar="script.py | -m module | -c code | command [arguments]",
        help="The program and its own arguments.",
        show_default=False,
    ),
]
Command = Annotated[
    list[str],
    typer.Argument(
        metavar="command [arguments]", help="The command and its own arguments.", show_default=False
    ),
]
Devices = Annotated[
    int | None,
    typer.Option(min=1, help="Number of NPUs. Default: ISTHMUS_ASCEND_DEVICES, or one for each rank."),
]
Report = Annotated[
    Path | None,
    typer.Option(
        help="Write the functions called, refused and missing; `isthmus ascend report` prints them."
    ),
]


@app.command(
    context_settings=PASS_ON,
    epilog="Examples: isthmus ascend run train.py --lr 1e-4 | isthmus ascend run --nproc 2 train.py | "
    "isthmus ascend run -m pkg.train",
)
def run(
    program: Program,
    nproc: Annotated[
        int, typer.Option("--nproc", min=0, help="Run a script or a module as so many ranks, by torchrun.")
    ] = 0,
    devices: Devices = None,
    report: Report = None,
) -> None:
    """Run a program of Python that uses torch_npu; for other commands see `isthmus ascend exec`."""
    if not _is_python(program):
        _refuse_option(program[0])
        raise fail(
            f"not a script.py, -m module or -c code: {program[0]}; for a command use "
            f"`isthmus ascend exec -- {' '.join(program)}`",
            2,
        )
    _replace(_python(program, nproc), _asked(devices, report))


@app.command(
    "exec",
    context_settings=PASS_ON,
    epilog="Examples: isthmus ascend exec -- pytest tests/ | isthmus ascend exec -- torchrun --nproc-per-node 2 "
    "train.py | isthmus ascend exec -- npu-smi info",
)
def execute(command: Command, devices: Devices = None, report: Report = None) -> None:
    """Run a command, such as pytest or torchrun, whose programs use torch_npu."""
    environment = _asked(devices, report)
    _replace(_found(command, environment), environment)


def _asked(devices: int | None, report: Path | None) -> dict[str, str]:
    """Return the environment of a program, with the options of the command."""
    environment = _environment()
    if devices is not None:
        environment["ISTHMUS_ASCEND_DEVICES"] = str(devices)
    if report is not None:
        report.unlink(missing_ok=True)
        environment["ISTHMUS_ASCEND_REPORT"] = str(report.absolute())
        preloaded = [str(LIBRARIES / "libisthmus_lookups.so"), *environment.get("LD_PRELOAD", "").split()]
        environment["LD_PRELOAD"] = " ".join(preloaded)
    return environment


def _environment() -> dict[str, str]:
    try:
        return os.environ | variables()
    except (NotBuilt, ValueError, OSError) as error:
        raise fail(error) from None


def _replace(command: list[str], environment: dict[str, str]) -> NoReturn:
    """Replace this process by a command."""
    try:
        os.execve(command[0], command, environment)
    except OSError as error:
        raise fail(f"cannot start {command[0]}: {error.strerror}", 2) from None


def _is_python(program: list[str]) -> bool:
    return program[0] in ("-m", "-c") or program[0].endswith(".py")


def _python(program: list[str], nproc: int = 0) -> list[str]:
    """Return the command line of a script, a module or code."""
    if not nproc:
        return [sys.executable, *program]
    if program[0] == "-c":
        raise fail("--nproc runs a script.py or -m module", 2)
    return [sys.executable, "-c", TORCHRUN, "--nproc-per-node", str(nproc), *program]


def _found(command: list[str], environment: dict[str, str]) -> list[str]:
    """Return a command line with the path of its program: one of this installation, else of PATH."""
    found = shutil.which(command[0], path=environment["PATH"])
    if found is None:
        _refuse_option(command[0])
        raise fail(f"no such command: {command[0]}", 2)
    return [found, *command[1:]]


def _refuse_option(word: str) -> None:
    if word.startswith("-"):
        raise fail(f"no such option: {word}; options stand first, those of the program after it", 2)


@app.command(
    context_settings=PASS_ON,
    epilog="Examples: isthmus ascend fault --call 20 ecc train.py | isthmus ascend fault --call 100 oom train.py",
)
def fault(
    kind: Annotated[
        Fault,
        typer.Argument(
            help="lost: the device; ecc: an HBM error; memory: an uncorrectable memory error; core: a kernel "
            "fails; oom: no more memory; hang: all streams stop; link: collectives fail.",
            show_default=False,
        ),
    ],
    program: ProgramOrCommand,
    call: Annotated[int, typer.Option(min=1, help="Number of the call that fails first.")] = 1,
    function: Annotated[
        str, typer.Option(help="Only functions whose names begin so count and fail, such as aclrtMemcpy.")
    ] = "",
) -> None:
    """Run a program and inject a failure, to test its recovery; options stand before the kind."""
    environment = _environment()
    environment["ISTHMUS_ASCEND_FAULT"] = ":".join([kind.value, str(call), *([function] if function else [])])
    _replace(_python(program) if _is_python(program) else _found(program, environment), environment)


@app.command()
def shell() -> None:
    """Start a shell in which python runs torch_npu, and npu-smi prints the NPUs."""
    environment = _environment()
    print("Ascend shell of isthmus; `exit` leaves it.", file=sys.stderr)
    _replace([environment.get("SHELL") or "/bin/sh"], environment)


@app.command()
def coverage(
    missing: Annotated[
        bool, typer.Option("--missing", help="Print the missing functions, and the operators that call them.")
    ] = False,
) -> None:
    """Print how many of the aclnn functions that torch_npu names the runtime has."""
    from isthmus_ascend.coverage import describe_missing, implemented_functions, installed_folder, named_by

    folder = installed_folder()
    if folder is None:
        raise fail("torch_npu is not installed; install it with: pip install torch_npu")
    named, present = named_by(folder), implemented_functions()
    print(f"{len(named & present)} of {len(named)} aclnn functions that torch_npu names are implemented")
    if missing:
        print("\n".join(describe_missing(name) for name in sorted(named - present)))


@app.command("report")
def print_report(
    file: Annotated[
        Path, typer.Argument(help="What `isthmus ascend run --report` wrote.", show_default=False)
    ],
    sites: Annotated[int, typer.Option(min=0, help="Number of call sites of each function.")] = 3,
) -> None:
    """Print the functions that a run called, that were refused, and that are missing, with their call sites."""
    from isthmus_ascend.report import lines, read

    try:
        print("\n".join(lines(read(file), sites)))
    except OSError as error:
        raise fail(f"cannot read {file}: {error.strerror}") from None
    except ValueError as error:
        raise fail(error) from None


@app.command()
def env() -> None:
    """Print the path of a set_env.sh: source "$(isthmus ascend env)"."""
    try:
        print(set_env())
    except (NotBuilt, ValueError, OSError) as error:
        raise fail(error) from None


@app.command()
def info() -> None:
    """Print the NPUs, their memory and processes, as `npu-smi info` does."""
    from isthmus_ascend.npu_smi import answer

    try:
        print("\n".join(answer(["info"])))
    except RuntimeError as error:
        raise fail(error) from None
