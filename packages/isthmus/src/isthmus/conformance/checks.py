"""Checks of an operator beside its golden cases, by name: load cases and laws."""

from isthmus.conformance.executor import Outcome
from isthmus.conformance.load import LOADS
from isthmus.conformance.long import is_called_long
from isthmus.conformance.relation_checks import check_law, laws_of
from isthmus.conformance.subject import Subject


def checks_of(operator: str) -> list[str]:
    """Return the names of an operator's checks: "load-threads", "law-scaling" ..."""
    loads = [name for name in LOADS if name != "load-long" or is_called_long(operator)]
    return [*loads, *laws_of(operator)]


def dtypes_of(name: str, subject: Subject) -> list[str]:
    """Return the dtypes for which a check is run by itself; [""] for all together."""
    return [""] if name in LOADS else subject.dtypes


def run_check(name: str, subject: Subject, dtype: str) -> Outcome | None:
    """Run a check for one of its dtypes; None if there is nothing to check."""
    return LOADS[name](subject) if name in LOADS else check_law(name, subject, dtype)
