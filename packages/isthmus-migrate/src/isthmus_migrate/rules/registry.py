"""The registry of rules: the modules of this folder, and entry points of other packages."""

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points

from isthmus_migrate import rules as package
from isthmus_migrate.rules.rule import Rule

GROUP = "isthmus_migrate.rules"
_TOGETHER = ({"IM118", "IM131"},)  # calls of torch.cuda.amp change with its imports


class RegistryError(Exception):
    """A rule is unknown or invalid; the message is one line."""


@functools.cache
def all_rules() -> Sequence[type[Rule]]:
    """Return every rule, in order of execution.

    Raises:
        RegistryError: an entry point does not load or is not a rule, or two rules have the same code.
    """
    found = [*_own_rules(), *_installed_rules()]
    by_code: dict[str, type[Rule]] = {}
    for rule in found:
        other = by_code.setdefault(rule.code, rule)
        if other is not rule:
            raise RegistryError(
                f"rule {rule.code}: both {_rule_location(other)} and {_rule_location(rule)} have this code"
            )
    return sorted(found, key=lambda rule: (rule.order, rule.code))


def select(names: Sequence[str] = (), ignore: Sequence[str] = ()) -> Sequence[type[Rule]]:
    """Select rules by code, name or code prefix such as ``"IM2"``; some are only taken, or left out, together.

    Args:
        names: only these; all if empty.
        ignore: without these.

    Raises:
        RegistryError: unknown rule.
    """
    for name in (*names, *ignore):
        if not any(_matches(rule, name) for rule in all_rules()):
            raise RegistryError(f"{name}: unknown rule; `isthmus migrate rules` lists all")
    taken = {rule.code for rule in all_rules() if not names or any(_matches(rule, name) for name in names)}
    left = {rule.code for rule in all_rules() if any(_matches(rule, name) for name in ignore)}
    for together in _TOGETHER:
        taken |= together if taken & together else set()
        left |= together if left & together else set()
    return [rule for rule in all_rules() if rule.code in taken - left]


def _matches(rule: type[Rule], name: str) -> bool:
    return rule.name == name or rule.code.startswith(name.upper())


def _own_rules() -> Iterator[type[Rule]]:
    for entry in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{entry.name}")
        yield from (
            value
            for value in vars(module).values()
            if inspect.isclass(value)
            and issubclass(value, Rule)
            and hasattr(value, "code")
            and value.__module__ == module.__name__
        )


def _installed_rules() -> Iterator[type[Rule]]:
    for entry in entry_points(group=GROUP):
        try:
            rule = entry.load()
        except Exception as error:  # a third-party module may raise anything
            raise RegistryError(f"entry point {entry.name} = {entry.value}: {error}") from error
        if not (inspect.isclass(rule) and issubclass(rule, Rule)):
            raise RegistryError(
                f"entry point {entry.name} = {entry.value}: not a subclass of {Rule.__name__}"
            )
        yield rule


def _rule_location(rule: type[Rule]) -> str:
    return f"{rule.__module__}.{rule.__qualname__}"
