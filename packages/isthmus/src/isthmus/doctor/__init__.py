"""``isthmus doctor``: check the environment and the chip, with a remedy for each problem.

Each subject has one file; packages above add theirs as entry points of the group ``isthmus.checks``. Libraries, with
PyTorch, are imported only in child processes (:mod:`isthmus_common.children`), so that a broken library or a crashing
driver does not break the report.
"""

from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import entry_points
from importlib.util import find_spec

from isthmus_common.finding import Check, Finding, State, run_check

__all__ = ["Finding", "State", "examine", "has_torch"]


def has_torch() -> bool:
    """Whether PyTorch is installed."""
    try:
        return find_spec("torch") is not None
    except (ImportError, ValueError):  # not imported in this process
        return False


def examine() -> list[Finding]:
    """Run all checks in parallel; return their findings in order of dependency."""
    checks = _checks()
    try:
        groups = _side_by_side(checks)
    except RuntimeError:  # at the limit of threads, which one of the checks reports
        groups = [run_check(check, subject) for subject, check in checks.items()]
    return [finding for group in groups for finding in group]


def _side_by_side(checks: dict[str, Check]) -> list[list[Finding]]:
    with ThreadPoolExecutor(len(checks)) as pool:
        futures = [pool.submit(run_check, check, subject) for subject, check in checks.items()]
        return [future.result() for future in futures]


def _checks() -> dict[str, Check]:
    from isthmus.doctor import (
        chip,
        environment,
        imports,
        libraries,
        permissions,
        plugins,
        requirements,
        versions,
    )
    from isthmus_common import limits

    torch = has_torch()
    return {
        "versions": versions.examine,
        "requirements": requirements.examine,
        "limits": limits.examine,
        "permissions": permissions.examine,
        "options": environment.options,
        "environment": environment.examine,
        "libraries": libraries.examine,
        "imports": imports.with_torch if torch else imports.without_torch,
        **({"plugins": plugins.examine} if torch else {}),
        "chip": chip.with_torch if torch else chip.without_torch,
        **{point.name: point.load() for point in entry_points(group="isthmus.checks")},
    }
