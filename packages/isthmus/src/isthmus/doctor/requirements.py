"""Check that installed packages meet each other's requirements, as `pip check` does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from isthmus.doctor.libraries import installed_distributions, name_of
from isthmus_common.finding import Finding, fail, ok, warning

_SUBJECT = "requirements"
_OURS = frozenset({"isthmus", "torch"})


class _Complaint(NamedTuple):
    package: str
    text: str
    wanted: str  # for pip install


def examine() -> Iterator[Finding]:
    """Report unmet requirements: a failure for PyTorch and Isthmus, a warning for others."""
    try:
        complaints = list(_complaints())
    except ModuleNotFoundError as error:
        yield warning(_SUBJECT, f"not checked: {error}", "`pip install packaging`")
        return
    for complaint in complaints:
        found = fail if complaint.package in _OURS else warning
        yield found(_SUBJECT, complaint.text, f"`pip install '{complaint.wanted}'`")
    if not complaints:
        yield ok(_SUBJECT, "every package has what it requires")


def _complaints() -> Iterator[_Complaint]:
    from packaging.requirements import InvalidRequirement, Requirement

    packages = {
        name_of(found): found for found in reversed(list(installed_distributions()))
    }  # the first on the path counts
    for package, distribution in sorted(packages.items()):
        for line in distribution.requires or () if package else ():
            try:
                requirement = Requirement(line)
            except InvalidRequirement:  # metadata of an old package
                continue
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
                continue
            name = requirement.name.lower().replace("_", "-").replace(".", "-")
            about = f"{package} {distribution.version}"
            if name not in packages:
                text = f"{about} requires {name}, which is not installed"
                yield _Complaint(package, text, name)
            elif not requirement.specifier.contains(version := packages[name].version, prereleases=True):
                text = f"{about} has requirement {requirement}, but you have {name} {version}"
                yield _Complaint(package, text, str(requirement))
