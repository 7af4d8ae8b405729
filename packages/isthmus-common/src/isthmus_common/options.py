"""Options: each is an environment variable ``ISTHMUS_*``, typed and documented in the table of its package alone.

A package names the module of its table by an entry point of the group ``isthmus.options``; the module has the table
as ``TABLE``. An option that starts something in the processes of a job names it (:attr:`Option.start`), and lower
packages call it without knowing it (:func:`start`). The row also has the option's flag of ``isthmus run``
(:attr:`Option.flag`), from which its command line and the environment of a job (:func:`job_variables`) are made.
This module imports nothing heavy: it is read inside every ``import torch``.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Literal, NamedTuple

from isthmus_common.units import parse_size, unit_for

GROUP = "isthmus.options"
PREFIX = "ISTHMUS_"

Kind = Literal["switch", "integer", "size", "text", "choice", "path"]
Moment = Literal["", "python", "import torch", "job"]


class InvalidOption(SystemExit):
    """An option has an invalid value. Ends the process; the message is one line."""


class Option(NamedTuple):
    """One option.

    Attributes:
        name: ``host_memory`` for the variable ``ISTHMUS_HOST_MEMORY``.
        kind: type of the value; ``isthmus run`` makes a path absolute, as programs may change their folder.
        default: value of a variable that is unset or empty; None: the reader decides.
        reader: who reads it.
        meaning: one line, which ends in ``; empty: ...`` where the reader decides on a default.
        choices: values of a choice.
        least: smallest integer or size in bytes.
        most: largest integer or size in bytes.
        check: of a text: raises ValueError for a wrong value.
        start: ``module:function`` that is called, or a module that is imported, where the option is set; of several
            options with the same one, once.
        moment: when: in each Python of a job before its program ("python"), when PyTorch is imported and the chip is
            registered ("import torch"), or when the shim of ``isthmus run`` is active ("job").
        run: value that ``isthmus run`` gives it, unless the environment has one.
        flag: placeholder for the value in the help of ``isthmus run``, which has a flag ``--host-memory`` then; "":
            that of the kind; None: no flag.
        needs: option without whose flag this one's flag is wrong.
        prepare: returns further variables of a job with this flag, from the values of all flags by their option;
            raises ValueError.
    """

    name: str
    kind: Kind
    default: bool | int | str | None
    reader: str
    meaning: str
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    check: Callable[[str], None] | None = None
    start: str = ""
    moment: Moment = ""
    run: str = ""
    flag: str | None = None
    needs: str = ""
    prepare: Callable[[Mapping[str, str]], Mapping[str, str]] | None = None

    @property
    def variable(self) -> str:
        """Name of the environment variable."""
        return PREFIX + self.name.upper()

    @property
    def long_flag(self) -> str:
        """Flag of ``isthmus run``, as ``--host-memory``."""
        return "--" + self.name.replace("_", "-")


def check_numbers(value: str) -> None:
    """Check a list of numbers; raises ValueError."""
    numbers(value)


def numbers(value: str) -> frozenset[int] | None:
    """Return the numbers of a list such as ``0,2,5-7``; None for "".

    Raises:
        ValueError: it is no such list.
    """
    found: set[int] = set()
    for part in filter(None, value.split(",")):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(f"{part!r} is not a number or a range; write 0,2,5-7")
        found |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(found) if value else None


def parse(option: Option, value: str) -> bool | int | str | None:
    """The value of a variable, typed; the default if it is empty.

    A size stays text, as ``8GiB``.

    Raises:
        ValueError: the value is wrong; what it is not and what to set, without the variable's name.
    """
    if value == "":
        return option.default
    if option.kind == "switch":
        if value not in ("0", "1"):
            raise ValueError("not a switch; set it to 0 or 1")
        return value == "1"
    if option.kind == "integer":
        if not value.isascii() or not value.isdecimal() or not _is_within(option, int(value)):
            raise ValueError(f"not a whole number {_limits(option)}")
        return int(value)
    if option.kind == "size":
        count = parse_size(value)
        if count is None or not _is_within(option, count):
            raise ValueError(
                "not a size; set it to bytes or a number with KiB, MiB, GiB or TiB, "
                f"{_limits(option)}, for example 8GiB"
            )
    elif option.kind == "choice":
        if value not in option.choices:
            raise ValueError(f"unknown value; expected {_list_choices(option.choices)}")
    elif option.check is not None:
        option.check(value)
    return value


class Table:
    """The options of one package.

    Args:
        options: the options.
        title: heading of their flags in the help of ``isthmus run``.
    """

    def __init__(self, options: Iterable[Option], title: str = "") -> None:
        self.options, self.title = tuple(options), title
        self._by_name = {option.name: option for option in self.options}

    def switch(self, name: str, environment: Mapping[str, str] = os.environ) -> bool:
        """The value of a switch.

        Raises:
            ValueError: one line with the variable, its value and what to set.
        """
        return bool(self.value(name, environment))

    def integer(self, name: str, environment: Mapping[str, str] = os.environ) -> int | None:
        """The value of an integer option; None if it is unset and has no default.

        Raises:
            ValueError: one line with the variable, its value and what to set.
        """
        value = self.value(name, environment)
        return None if value is None else int(value)

    def text(self, name: str, environment: Mapping[str, str] = os.environ) -> str:
        """The value of a text, a size or a choice.

        Raises:
            ValueError: one line with the variable, its value and what to set.
        """
        return str(self.value(name, environment))

    def check(self, environment: Mapping[str, str] = os.environ) -> None:
        """Check all options.

        Raises:
            ValueError: one line with the first variable that is wrong, its value and what to set.
        """
        for name in self._by_name:
            self.value(name, environment)

    def variable(self, name: str) -> str:
        """Name of the environment variable of an option."""
        return self._by_name[name].variable

    def variables(self) -> frozenset[str]:
        """Names of all environment variables."""
        return frozenset(option.variable for option in self.options)

    def value(self, name: str, environment: Mapping[str, str]) -> bool | int | str | None:
        """The value of an option of any kind; raises ValueError as :meth:`text` does."""
        option = self._by_name[name]
        value = environment.get(option.variable, "")
        try:
            return parse(option, value)
        except ValueError as error:
            raise ValueError(f"{option.variable}={value}: {error}") from None


@cache
def tables() -> tuple[Table, ...]:
    """Return the tables of the installed packages, that of isthmus first."""
    from importlib.metadata import entry_points

    entries = sorted(entry_points(group=GROUP), key=lambda entry: (entry.name != "isthmus", entry.name))
    return tuple(entry.load().TABLE for entry in entries)


def job_variables(given: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that ``isthmus run`` sets for a job.

    Args:
        given: value of each flag, by the name of its option; "" is not given.
        environment: variables of ``isthmus run``.

    Raises:
        ValueError: a flag is wrong; one line.
    """
    variables: dict[str, str] = {}
    given = {name: value for name, value in given.items() if value}
    declared = {option.name: option for table in tables() for option in table.options}
    for name in given.keys() - declared.keys():
        raise ValueError(f"--{name}: no such option of the installed packages")
    for option in declared.values():
        value = given.get(option.name, "")
        if value and option.needs and option.needs not in given:
            raise ValueError(f"{option.long_flag} needs --{option.needs}")
        if option.run and option.variable not in environment:
            variables[option.variable] = option.run
        if value:
            try:
                parse(option, value)
                variables |= option.prepare(given) if option.prepare else {}
            except ValueError as error:
                raise ValueError(f"{option.long_flag} {value}: {error}") from None
        elif option.kind == "path" and option.needs in given:
            value = environment.get(option.variable) or str(option.default)
        if value:
            variables[option.variable] = str(Path(value).absolute()) if option.kind == "path" else value
    return variables


def start(
    moment: Moment, known: frozenset[str] = frozenset(), environment: Mapping[str, str] = os.environ
) -> None:
    """Call what the options that are set start at this moment.

    Args:
        moment: as in :class:`Option`.
        known: variables that start nothing. If no other variable of Isthmus is set, no table is read.
        environment: the variables.

    Raises:
        InvalidOption: an option of any package is invalid.
    """
    given = {name for name in environment if name.startswith(PREFIX)} - known
    if not given:
        return
    targets = []
    for table in tables():
        try:
            table.check(environment)
        except ValueError as error:
            raise InvalidOption(f"isthmus: {error}") from None
        for option in table.options:
            is_asked = option.moment == moment and option.variable in given
            if is_asked and table.value(option.name, environment) != option.default:
                targets.append(option.start)
    for target in dict.fromkeys(targets):
        module, _, function = target.partition(":")
        imported = import_module(module)
        if function:
            getattr(imported, function)()


def _is_within(option: Option, value: float) -> bool:
    return (option.least is None or value >= option.least) and (option.most is None or value <= option.most)


def _limits(option: Option) -> str:
    show = _size_text if option.kind == "size" else str
    if option.most is None:
        return f"of at least {show(option.least or 0)}"
    return f"from {show(option.least or 0)} to {show(option.most)}"


def _size_text(count: int) -> str:
    unit, scale = unit_for(count)
    return f"{count // scale}{unit}"


def _list_choices(choices: tuple[str, ...]) -> str:
    *first, last = filter(None, choices)
    return f"{', '.join(first)} or {last}"
