"""Uses of PyTorch's functions, modules and optimizers that the target lacks (IM501) or runs on the CPU (IM502).

Two probed tables decide: the ATen operators that a public name reaches (:mod:`probe`, once per PyTorch version, kept
in the user's cache), and what the target does with each (:mod:`targets`). Other names yield no finding.
"""

import ast
import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from isthmus_common.files import make_folder, user_cache
from isthmus_migrate.analyse import probe, targets
from isthmus_migrate.analyse.detector import Project, ProjectDetector
from isthmus_migrate.source.findings import Finding, Severity
from isthmus_migrate.source.module import Module

_METHODS = "torch.Tensor."
_HOW = {probe.ALWAYS: "reaches", probe.SOMETIMES: "may reach", probe.BACKWARD: "its gradient reaches"}
_SHOWN = 3  # operators listed in a finding
# Methods of builtin types, which unknown objects may be.
_COMMON = frozenset(name for each in (str, bytes, list, dict, set, int, float) for name in dir(each))

Reached = dict[str, dict[str, str]]


def gather(module: Module) -> list[Finding] | None:
    """Return findings, without message, at calls of PyTorch's names.

    The subject is the name; ``"torch.Tensor.sum"`` for a method of an unknown object, which may be a tensor.
    """
    if not module.mentions("torch"):
        return None
    uses: list[Finding] = []
    for call in module.of(ast.Call):
        name = module.names.qualified(call.func)
        if name is None and isinstance(call.func, ast.Attribute) and call.func.attr not in _COMMON:
            name = f"{_METHODS}{call.func.attr}"
        if name and name.startswith("torch."):
            uses.append(module.finding("", Severity.REVIEW, call, name, "", ""))
    return uses


def judge(project: Project) -> Iterator[Finding]:
    """Yield uses that reach an operator that the target lacks or runs by fallback."""
    if not project.target or not any(project.facts):
        return
    try:
        found = ask(project.target)
        reached = table() if found.operators else {}
    except LookupError as error:
        print(f"isthmus: operators are not checked: {error}", file=sys.stderr)
        return
    troubled = {
        name: bad for name, operators in reached.items() if (bad := operators.keys() & found.operators.keys())
    }
    for uses in project.facts:
        for use in uses:
            if use.subject in troubled:
                yield _finding(use, troubled[use.subject], reached[use.subject], found)


def ask(target: str) -> targets.Troubles:
    """Return the operators that a device does not run itself, from a process that imports PyTorch.

    Raises:
        LookupError: this PyTorch does not have the device, or has no kernels for it.
    """
    environment = dict(os.environ)
    if target == "chip":
        environment.setdefault("ISTHMUS_DRIVER", "host")  # even with another accelerator
    command = [sys.executable, "-m", targets.__name__, target]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise LookupError(
            lines[-1] if lines else f"the query of the device exited with code {done.returncode}"
        )
    device, operators = json.loads(done.stdout.splitlines()[-1])
    return targets.Troubles(device, {name: (route, why) for name, (route, why) in operators.items()})


def table() -> Reached:
    """Return public name -> ATen operator -> when it is reached; generated once per PyTorch version.

    Raises:
        LookupError: PyTorch is not installed, or the table cannot be generated.
    """
    path = cache()
    if not path.is_file():
        print("isthmus: probing PyTorch's operators (once per version, a minute or two)", file=sys.stderr)
        _make(path)
    reached: Reached = json.loads(path.read_text())
    return reached


def cache() -> Path:
    """Return the path of the table."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise LookupError("PyTorch is not installed; install it, or pass --no-probe") from None
    digest = hashlib.sha256(Path(probe.__file__).read_bytes()).hexdigest()[:12]
    return user_cache() / "operators" / f"torch-{version}-{digest}.json"


def _make(path: Path) -> None:
    try:
        make_folder(path.parent)
    except OSError as error:
        raise LookupError(
            f"{path.parent}: {error.strerror}; set XDG_CACHE_HOME, or pass --no-probe"
        ) from None
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}  # imports PyTorch without backends
    done = subprocess.run(_command(path), env=environment, stdout=subprocess.DEVNULL, check=False)
    if done.returncode or not path.is_file():
        raise LookupError("PyTorch could not be probed, see above; pass --no-probe to skip this")


def _command(path: Path) -> list[str]:
    return [sys.executable, "-m", probe.__name__, str(path)]


def _finding(
    use: Finding, troubled: Iterable[str], reached: dict[str, str], found: targets.Troubles
) -> Finding:
    ordered = sorted(troubled, key=lambda name: (list(_HOW).index(reached[name]), name))
    missing = [name for name in ordered if found.operators[name][0] == targets.NONE]
    shown = missing or ordered
    certain = any(reached[name] == probe.ALWAYS for name in missing) and not use.subject.startswith(_METHODS)
    parts = [f"{_HOW[reached[name]]} {name}" for name in shown[:_SHOWN]]
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    what = "lacks" if missing else "runs by fallback on the CPU"
    why = found.operators[shown[0]][1]
    return use._replace(
        code="IM501" if missing else "IM502",
        severity=Severity.MANUAL if certain else Severity.REVIEW,
        message=f"{', '.join(parts)}{more}, which {found.device} {what} ({why})",
        advice=_advise(use.subject, bool(missing)),
    )


def _advise(name: str, missing: bool) -> str:
    condition = "if it is a tensor's: " if name.startswith(_METHODS) else ""
    if missing:
        return f"{condition}use other operators, add a kernel to the driver, or copy to the CPU and back around it"
    return f"{condition}it works but is slow: keep it out of the training loop, or add a kernel to the driver"


DETECTOR = ProjectDetector(gather, judge, probes=True)
