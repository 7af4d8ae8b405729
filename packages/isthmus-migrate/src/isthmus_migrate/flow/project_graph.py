"""The facts of all modules joined in one graph: arguments with parameters, attributes with those of their classes."""

from __future__ import annotations

import builtins
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from isthmus_migrate.flow import sinks
from isthmus_migrate.flow.builtin_effects import ARGUMENTS
from isthmus_migrate.flow.facts import ANY, REST, Call, Facts
from isthmus_migrate.flow.graph import Graph
from isthmus_migrate.flow.symbols import Symbols
from isthmus_migrate.source.verdicts import Use

# Attributes that are the same thing in every class of a project.
DEVICE = re.compile(
    r"(\w+_)?(device|dev|accelerator|device_type|device_name|map_location|backend)(_type|_name|_str)?",
    re.IGNORECASE,
)
_ROUNDS = 5
_BUILTINS = frozenset(dir(builtins))


class Joined:
    """The joined facts of a project.

    Args:
        found: facts of its modules.
    """

    def __init__(self, found: Iterable[Facts]) -> None:
        self.facts = list(found)
        self.symbols = Symbols(self.facts)
        self._graph = Graph()
        self._sinks: dict[Use, dict[str, str]] = defaultdict(dict)
        self._instances: dict[str, list[str]] = {}
        self._connect()

    def runs(self, call: Call) -> Iterator[str]:
        """Yield the project's functions that a call is shown to run, or to pass on."""
        symbols = self.symbols
        owners = self._classes(call.receiver)
        if owners or not call.receiver or call.receiver.startswith("super "):
            yield from (name for name, _ in self._functions(call))
        held = [f"{each}.{call.callee}" for owner in owners for each in symbols.lineage(owner)]
        for made in {owner for slot in (*held, call.variable) for owner in self._classes(slot)}:
            yield symbols.method(made, "__call__") or symbols.method(made, "forward")
        function, _, last = symbols.resolve(call.callee).rpartition(".")
        if last == "apply" and symbols.is_class(function):  # the method of an autograd function
            yield from (symbols.method(function, each) for each in ("forward", "backward"))
        for _, slot in call.arguments:
            passed = (slot, *self._graph.assigned_slots(self._slot(slot)))
            yield from (name for name in map(symbols.resolve, passed) if symbols.is_function(name))

    def _classes(self, slot: str) -> list[str]:
        slot = self._slot(slot)
        own = slot.removesuffix("@")
        return self._instances.get(slot, [own] if slot != own and self.symbols.is_class(own) else [])

    def _strings(self) -> Iterator[str]:
        for facts in self.facts:
            yield from map(self._slot, facts.strings.values())

    def _slot(self, slot: str) -> str:
        """Return a slot under the name of its definition."""
        return self.symbols.slot(slot)

    def _connect(self) -> None:
        graph = self._graph
        for facts in self.facts:
            for source, destination in facts.flows:
                graph.add("flow", self._slot(source), self._slot(destination))
            for source, destination, key in facts.stores:
                graph.add("store", self._slot(source), self._slot(destination), key)
            for source, key, destination in facts.loads:
                graph.add("load", self._slot(source), self._slot(destination), key)
        self._options = sorted(self._own_options())
        for name in self._options:
            graph.link(f"{ARGUMENTS}.{name}", f"?.{name}")
        for _ in range(_ROUNDS):
            self._find_instances()
            changed = [self._bind(call) for facts in self.facts for call in facts.calls]
            changed += [
                self._attribute(self._slot(receiver), name)
                for facts in self.facts
                for receiver, name in facts.attributes
            ]
            if not any(changed):
                break
        for facts in self.facts:
            for call in facts.calls:
                self._sink(call)

    def _own_options(self) -> Iterator[str]:
        """Yield the command-line options for devices and backends whose names no class has as an attribute."""
        reached = (slot.rpartition(".") for slot, path in self._graph.forward(self._strings()) if not path)
        names = {name for owner, _, name in reached if owner == ARGUMENTS}
        split = (slot.rpartition(".") for slot in self._graph.slots())
        yield from names - {
            name for owner, _, name in split if name in names and self.symbols.is_class(owner)
        }

    def _find_instances(self) -> None:
        starts = sorted(slot for slot in self._graph.slots() if slot.endswith("@"))
        reached = self._graph.labels(starts)
        self._instances = {
            slot: sorted(each.removesuffix("@") for each in found) for slot, found in reached.items()
        }

    def _attribute(self, receiver: str, name: str) -> bool:
        """Join an attribute of an object with that of its classes, or of any object."""
        slot = f"{receiver}.{name}"
        owners = self._instances.get(receiver, [])
        changed = False
        for owner in owners:
            for each in self.symbols.lineage(owner):
                changed |= self._graph.link(slot, f"{each}.{name}")
        certain = DEVICE.fullmatch(name) is not None or name in self._options
        for each in (slot,) if not owners else (f"{owner}.{name}" for owner in owners):
            if each != f"?.{name}":
                changed |= self._graph.link(each, f"?.{name}", certain)
        return changed

    def _bind(self, call: Call) -> bool:
        """Join the arguments of a call with the parameters of the functions that it may call."""
        changed = False
        functions = list(self._functions(call))
        if not functions and not call.receiver and self.symbols.is_class(call.callee):
            changed |= self._fields(call)
        for function, certain in functions:
            for argument, slot in call.arguments:
                changed |= self._pass(function, argument, self._slot(slot), certain)
            if call.result:
                changed |= self._graph.add("flow", f"{function}()", call.result, certain=certain)
        owner = self.symbols.resolve(call.callee) if not call.receiver else ""
        if call.result and self.symbols.is_class(call.callee) and owner:
            changed |= self._graph.add("flow", f"{owner}@", call.result)
        return changed

    def _fields(self, call: Call) -> bool:
        """Join the arguments for a dataclass with its fields."""
        owner = self.symbols.resolve(call.callee)
        fields = self.symbols.fields(owner)
        changed = False
        for argument, slot in call.arguments:
            name = fields[argument] if isinstance(argument, int) and argument < len(fields) else argument
            if isinstance(name, str) and name != REST:
                changed |= self._graph.add("flow", self._slot(slot), f"{owner}.{name}")
        return changed

    def _functions(self, call: Call) -> Iterator[tuple[str, bool]]:
        """Yield the project's functions that a call may run, and whether that is certain."""
        if call.variable:
            held = {self.symbols.callee(each) for each in self._held_functions(call.variable)} - {""}
            if held:
                yield from ((name, True) for name in sorted(held))
                return
        if not call.receiver:
            name = self.symbols.callee(call.callee)
            if name:
                yield name, True
        elif call.receiver.startswith("super "):
            name = self.symbols.method(call.receiver.removeprefix("super "), call.callee, above=True)
            if name:
                yield name, True
        else:
            owners = self._classes(call.receiver)
            methods = [self.symbols.method(owner, call.callee) for owner in owners]
            if owners:
                yield from ((name, True) for name in methods if name)
            else:
                named = self.symbols.methods(call.callee)
                yield from ((name, len(named) == 1 and not _is_common(call.callee)) for name in named)

    def _held_functions(self, variable: str) -> list[str]:
        """Return the functions and classes that a variable may hold, by their names."""
        slots = self._graph.assigned_slots(self._slot(variable))
        return [slot for slot in slots if sinks.is_torch(slot) or self.symbols.callee(slot)]

    def _pass(self, function: str, argument: str | int, slot: str, certain: bool) -> bool:
        """Join an argument with a parameter."""
        signature = self.symbols.signature(function)
        graph = self._graph
        if argument == REST:
            changed = False
            for name in sorted(signature.named):
                changed |= graph.add("load", slot, f"{function}.{name}", name, certain)
            if signature.rest:
                changed |= graph.add("flow", slot, f"{function}.{signature.rest}", certain=certain)
            return changed
        if isinstance(argument, int):
            position = argument + signature.is_bound
            if position >= len(signature.positional):
                return bool(signature.more) and graph.add(
                    "store", slot, f"{function}.{signature.more}", str(argument), certain
                )
            argument = signature.positional[position]
        if argument in signature.named:
            return graph.add("flow", slot, f"{function}.{argument}", certain=certain)
        return bool(signature.rest) and graph.add(
            "store", slot, f"{function}.{signature.rest}", argument, certain
        )

    def _sink(self, call: Call) -> None:
        """Record what PyTorch takes the arguments of a call as."""
        name = call.callee
        if call.receiver:
            owners = self._classes(call.receiver)
            if owners and any(self.symbols.method(owner, name) for owner in owners):
                return
        elif self._is_of_project(name):
            return
        inherited = self._inherited_function(call)
        held = self._held_functions(call.variable) if call.variable else ()
        for each in held or (inherited or name,):
            for argument, slot in call.arguments:
                self._take(call, each, argument, self._slot(slot))

    def _is_of_project(self, name: str) -> bool:
        """Whether a name is a function or class of the project, and no class derived from PyTorch's."""
        own = bool(self.symbols.callee(name)) or self.symbols.is_class(name)
        return own and not any(map(sinks.is_torch, self.symbols.foreign_bases(name)))

    def _inherited_function(self, call: Call) -> str:
        """Return the function outside the project that a call of ``super()`` or of a subclass runs."""
        if call.receiver.startswith("super "):
            above = self.symbols.foreign_bases(call.receiver.removeprefix("super "))
            return next((f"{each}.{call.callee}" for each in above), "")
        return ""

    def _take(self, call: Call, name: str, argument: str | int, slot: str) -> None:
        if name.startswith("torch.library."):  # the device types of an operator's implementation
            return
        is_method = bool(call.receiver) and name == call.callee
        if argument in ("map_location", 1) and self._use(is_method, name, argument) is Use.DEVICE:
            place = f"{slot}*values"  # a dictionary of devices
            self._graph.add("load", slot, place, ANY)
            self._sinks[Use.DEVICE].setdefault(place, f"{name}(map_location=) in {call.place}")
        if argument == REST:
            for keyword in ("device", "map_location", "device_type"):
                if sinks.is_torch(name) and self._use(is_method, name, keyword):
                    place = f"{self._slot(slot)}*{keyword}"
                    self._graph.add("load", slot, place, f"={keyword}")
                    self._sinks[Use.DEVICE].setdefault(place, f"{name}({keyword}=) in {call.place}")
            return
        use = self._use(is_method, name, argument)
        if use is None and not is_method and name in _BUILTINS:
            return
        if use is None and self._functions_known(call):
            return
        said = f"{argument}=" if isinstance(argument, str) else "..."
        self._sinks[use or Use.UNKNOWN].setdefault(slot, f"{name}({said}) in {call.place}")

    def _functions_known(self, call: Call) -> bool:
        return any(certain for _, certain in self._functions(call))

    def _use(self, is_method: bool, name: str, argument: str | int) -> Use | None:
        found = sinks.of_method(name, argument) if is_method else sinks.of_function(name, argument)
        if found is None and not is_method:
            last = name.rpartition(".")[2]
            found = sinks.of_method(last, argument) if "." in name else None
        return found


def _is_common(name: str) -> bool:
    """Whether many unrelated classes have a method of this name."""
    return name in {
        "to",
        "cuda",
        "cpu",
        "load",
        "save",
        "run",
        "get",
        "set",
        "forward",
        "__call__",
        "type",
        "init",
    }
