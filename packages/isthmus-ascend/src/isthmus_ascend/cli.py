"""The command ``isthmus ascend``."""

import os
import shlex
import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from isthmus_ascend.environment import LIBRARIES, NotBuilt, variables
from isthmus_common import __version__
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
        metavar="script.py | -m module | -c code | command [arguments]",
        help="The program and its own arguments.",
        show_default=False,
    ),
]


@app.command(
    context_settings=PASS_ON,
    epilog="Examples: isthmus ascend run train.py --lr 1e-4 | isthmus ascend run --nproc 2 train.py | "
    "isthmus ascend run -m pkg.train | isthmus ascend run torchrun --nproc-per-node 2 train.py",
)
def run(
    program: Program,
    nproc: Annotated[
        int, typer.Option("--nproc", min=0, help="Run a script or a module as so many ranks, by torchrun.")
    ] = 0,
    devices: Annotated[
        int | None,
        typer.Option(min=1, help="Number of NPUs. Default: ISTHMUS_ASCEND_DEVICES, or one for each rank."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="Write the functions called, refused and missing; `isthmus ascend report` prints them."
        ),
    ] = None,
) -> None:
    """Run a program that uses torch_npu."""
    environment = _environment()
    if devices is not None:
        environment["ISTHMUS_ASCEND_DEVICES"] = str(devices)
    if report is not None:
        report.unlink(missing_ok=True)
        environment["ISTHMUS_ASCEND_REPORT"] = str(report.absolute())
        preloaded = [str(LIBRARIES / "libisthmus_lookups.so"), *environment.get("LD_PRELOAD", "").split()]
        environment["LD_PRELOAD"] = " ".join(preloaded)
    _start(program, nproc, environment)


def _environment() -> dict[str, str]:
    try:
        return os.environ | variables()
    except NotBuilt as error:
        raise fail(error) from None


def _start(program: list[str], nproc: int, environment: dict[str, str]) -> NoReturn:
    """Replace this process by the program."""
    _replace(_command(program, nproc), environment)


def _replace(command: list[str], environment: dict[str, str]) -> NoReturn:
    """Replace this process by a command."""
    try:
        os.execve(command[0], command, environment)
    except OSError as error:
        raise fail(f"cannot start {command[0]}: {error.strerror}", 2) from None


def _command(program: list[str], nproc: int) -> list[str]:
    """Return the command line: Python's for a script, a module or code, else the program's own."""
    is_module, is_script = program[0] == "-m", program[0].endswith(".py")
    if nproc:
        if not (is_module or is_script):
            raise fail("--nproc runs a script.py or -m module", 2)
        return [sys.executable, "-c", TORCHRUN, "--nproc-per-node", str(nproc), *program]
    if is_module or is_script or program[0] == "-c":
        return [sys.executable, *program]
    beside = Path(sys.executable).parent  # a command of this environment comes first
    found = shutil.which(program[0], path=os.pathsep.join([str(beside), os.environ.get("PATH", "")]))
    if found is None and program[0].startswith("-"):
        raise fail(f"no such option: {program[0]}; options stand first, those of the program after it", 2)
    if found is None:
        raise fail(f"no such command or script: {program[0]}", 2)
    return [found, *program[1:]]


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
    program: Program,
    call: Annotated[int, typer.Option(min=1, help="Number of the call that fails first.")] = 1,
    function: Annotated[
        str, typer.Option(help="Only functions whose names begin so count and fail, such as aclrtMemcpy.")
    ] = "",
) -> None:
    """Run a program and inject a failure, to test its recovery; options stand before the kind."""
    environment = _environment()
    environment["ISTHMUS_ASCEND_FAULT"] = ":".join([kind.value, str(call), *([function] if function else [])])
    _start(program, 0, environment)


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
    """Print the shell's export lines: eval "$(isthmus ascend env)"."""
    try:
        found = variables()
    except NotBuilt as error:
        raise fail(error) from None
    for name, value in found.items():
        print(f"export {name}={shlex.quote(value)}")


@app.command()
def info() -> None:
    """Print the NPUs and their memory, as npu-smi does."""
    from isthmus_ascend.info import npus, table

    try:
        print(table(npus(), __version__))
    except RuntimeError as error:
        raise fail(error) from None
