"""Contributions of a module to the data flow of its project: picklable facts.

A *slot* holds values: a variable ``"module.function.name"``, the result of a function ``"module.function()"``, the
instances of a class ``"module.Class@"``, an attribute ``"slot.name"``, or an expression ``"path:line:column:..."``.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from isthmus_migrate.source.verdicts import Place, Steers, Use

ANY = ""  # the field of a container for an unknown key
KEYS = "\0keys"  # the field of a container for its own keys
TORCH = "torch@"  # tensors and modules that PyTorch makes
WORD = "@word"  # a slot that holds all other strings
TEXT = "@text"  # the slot of what is printed, logged or written
COMPARED = "=="  # the end of the slot of a comparison, in which its operands meet
REST = "**"  # an argument that passes a dictionary by keyword


class Call(NamedTuple):
    """A call.

    Attributes:
        callee: dotted name of the function; of a method of an unknown object, its name.
        receiver: slot of the object whose method is called; "" for a function.
        arguments: parameter name, position, or :data:`REST`, and the slot passed for it.
        result: slot of the result.
        place: for messages, ``"train.py:12"``.
        variable: slot of the variable or expression that holds the function; "" for one that is named.
    """

    callee: str
    receiver: str
    arguments: tuple[tuple[str | int, str], ...]
    result: str
    place: str
    variable: str = ""


class Signature(NamedTuple):
    """Parameters of a function.

    Attributes:
        positional: names of parameters that can be passed by position.
        named: names of all parameters.
        rest: name of ``**options``, or "".
        more: name of ``*arguments``, or "".
        is_bound: whether the first parameter is the object or class.
    """

    positional: tuple[str, ...]
    named: frozenset[str]
    rest: str
    more: str
    is_bound: bool


class Class(NamedTuple):
    """A class.

    Attributes:
        bases: dotted names.
        fields: names of annotated class variables, in order, which are parameters of a dataclass.
    """

    bases: tuple[str, ...]
    fields: tuple[str, ...]


class Reference(NamedTuple):
    """The use of a name in a function.

    Attributes:
        is_sheltered: whether it uses it only where there is an accelerator.
        is_required: whether it cannot do without it: outside a condition, and not a question about CUDA.
        steers: what becomes of its uses; None for a name that is not of ``torch.cuda``.
    """

    is_sheltered: bool = True
    is_required: bool = False
    steers: Steers | None = None


@dataclass
class Facts:
    """Facts of a module.

    Attributes:
        module: its dotted name.
        path: of the file, relative to the project.
        uses_torch: whether it imports PyTorch, or a library built on it.
        others: types of other accelerators that it names, and ``"meta"``.
        flows: source and destination slot.
        stores: source, destination and key: ``destination[key] = source``.
        loads: source, key and destination: ``destination = source[key]``.
        attributes: slot of an object and name of an attribute that is read or assigned.
        calls: its calls.
        sinks: slot, use and words for each place where PyTorch takes a value.
        sources: slots that hold devices.
        unread: slots of required parameters that their functions ignore.
        strings: places of strings that may name a device or backend, and their slots.
        values: places of operands of comparisons and of receivers, and their slots.
        functions: by dotted name.
        classes: by dotted name.
        tested: texts that it looks for in messages.
        raised: texts of its own errors that speak of CUDA's memory.
        imports: names bound at the top level by imports, and their dotted names.
        references: dotted names that each function uses, and how; those of the module under "".
        built: dotted names of the extensions that it builds of CUDA sources.
        runs: dotted names of what each function calls whenever it runs, and of the decorators of kernels.
        has_local_rank: whether it names torchrun's variable LOCAL_RANK.
        is_script: whether it is run as a program, or by pytest.
        is_mocking: whether it may replace functions by mocks.
        mocks_choice: whether ``torch.cuda.is_available`` may be one of them.
        before_choice: modules that may be loaded before this one sets ``CUDA_VISIBLE_DEVICES``.
    """

    module: str
    path: str
    uses_torch: bool = False
    others: set[str] = field(default_factory=set)
    flows: list[tuple[str, str]] = field(default_factory=list)
    stores: list[tuple[str, str, str]] = field(default_factory=list)
    loads: list[tuple[str, str, str]] = field(default_factory=list)
    attributes: dict[tuple[str, str], None] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    sinks: list[tuple[str, Use, str]] = field(default_factory=list)
    sources: set[str] = field(default_factory=set)
    unread: set[str] = field(default_factory=set)
    strings: dict[Place, str] = field(default_factory=dict)
    values: dict[Place, str] = field(default_factory=dict)
    functions: dict[str, Signature] = field(default_factory=dict)
    classes: dict[str, Class] = field(default_factory=dict)
    tested: set[str] = field(default_factory=set)
    raised: set[str] = field(default_factory=set)
    imports: dict[str, str] = field(default_factory=dict)
    references: dict[str, dict[str, Reference]] = field(default_factory=dict)
    built: set[str] = field(default_factory=set)
    runs: dict[str, set[str]] = field(default_factory=dict)
    has_local_rank: bool = False
    is_script: bool = False
    is_mocking: bool = False
    mocks_choice: bool = False
    before_choice: set[str] = field(default_factory=set)
