"""Decide what each place of a project holds, by its joined facts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from isthmus_migrate.flow.builtin_effects import ARGUMENTS
from isthmus_migrate.flow.facts import ANY, COMPARED, KEYS, TEXT, WORD, Facts
from isthmus_migrate.flow.graph import Node
from isthmus_migrate.flow.project_graph import DEVICE, Joined
from isthmus_migrate.source.verdicts import Flow, Use, Verdict

WORD_HERE = Verdict(Use.WORD, True, "")
UNKNOWN = Verdict(Use.UNKNOWN, False, "has a value that is not shown")


class Solution(Joined):
    """The data flow of a project.

    Args:
        found: facts of its modules.
    """

    def __init__(self, found: Iterable[Facts]) -> None:
        super().__init__(found)
        graph = self._graph
        self._taken = {
            use: (graph.backward(self._sinks[use]), graph.backward(self._sinks[use], certain=False))
            for use in (Use.DEVICE, Use.BACKEND, Use.UNKNOWN)
        }
        sources = [self._slot(each) for facts in self.facts for each in facts.sources]
        self._given = graph.forward(sources), graph.forward(sources, certain=False)
        self._words = graph.forward([WORD])
        self._met_by_words = graph.nodes_leading_to(self._words)
        self._unread = {self._slot(each) for facts in self.facts for each in facts.unread}
        self._others = frozenset[str]().union(*(facts.others for facts in self.facts))
        self._verdicts = {slot: self._string(slot) for slot in self._strings()}
        shown = {slot for slot, (use, certain, _) in self._verdicts.items() if use is Use.DEVICE and certain}
        self._named = {node for node in graph.forward(shown) if node[0] != TEXT}

    def of(self, facts: Facts) -> Flow:
        """Return the verdicts on the places of a module."""
        strings = {place: self._verdicts[self._slot(slot)] for place, slot in facts.strings.items()}
        values = {place: self._value(self._slot(slot)) for place, slot in facts.values.items() if slot}
        classes = {place: frozenset(self._classes(slot)) for place, slot in facts.values.items() if slot}
        classes = {place: found for place, found in classes.items() if found}
        return Flow(facts.uses_torch, self._others, strings, values, classes)

    def settings(self) -> dict[str, Verdict]:
        """Return what PyTorch takes the values of keys and attributes as, by their names."""
        found: dict[str, Verdict] = {}
        for facts in self.facts:
            read = [(f"{self._slot(owner)}.{name}", name) for owner, name in facts.attributes]
            read += [(self._slot(slot), key) for _, key, slot in facts.loads]
            for slot, name in sorted(read):
                for use in (Use.DEVICE, Use.BACKEND):
                    if name.isidentifier() and (why := self._by_sink(slot, use, 0)):
                        found.setdefault(name, Verdict(use, True, f"passed to {why}"))
        return found

    def ignores_local_rank(self) -> bool:
        """Whether the local rank comes from the environment, and no option of this name is shown to be read."""
        named = (
            (slot, name) for facts in self.facts for slot, name in facts.attributes if name == "local_rank"
        )
        read = (
            slot
            for slot, _ in named
            if slot != f"{ARGUMENTS}@" and ARGUMENTS in self._classes(self._slot(slot))
        )
        return any(facts.has_local_rank for facts in self.facts) and next(read, None) is None

    def _string(self, slot: str) -> Verdict:
        """Return what a string is."""
        for certain in (0, 1):
            for use in (Use.DEVICE, Use.BACKEND):
                why = self._by_sink(slot, use, certain)
                if why:
                    return Verdict(use, certain == 0, f"passed to {why}")
            if certain == 0:
                met = self._met(slot)
                if met is not None:
                    return met
        why = self._by_sink(slot, Use.UNKNOWN, 0)
        if why:
            return Verdict(Use.UNKNOWN, False, f"passed to {why}")
        return self._judge_escaping(slot)

    def _judge_escaping(self, slot: str) -> Verdict:
        """Return what a string is that PyTorch is not shown to take: a word, if it is one among other words."""
        nowhere = {slot, TEXT, *self._unread}
        reached = [node for node in self._graph.forward([slot]) if node[1] or node[0] not in nowhere]
        labels = (label for name, path in reached for label in path or (name.rpartition(".")[2],))
        is_named = any(map(DEVICE.fullmatch, labels))
        elements = (name for name, path in reached if path and (path[0] == ANY or path[0].isdigit()))
        if any(map(self._may_be_looked_up, elements)):
            return Verdict(Use.UNKNOWN, False, "a device may be looked for among words like it")
        if not is_named and any(node in self._words for node in reached if node[1] != (KEYS,)):
            return WORD_HERE
        for name, path in reached:
            if path == (KEYS,):
                if self._may_be_looked_up(name):
                    return Verdict(Use.UNKNOWN, False, "a device type may be looked up among keys like it")
            elif path and self._by_sink(name, Use.UNKNOWN, 0):
                return Verdict(
                    Use.UNKNOWN, False, f"in what is passed to {self._by_sink(name, Use.UNKNOWN, 0)}"
                )
            elif self._graph.is_end((name, path)) or name.startswith("?.") or is_named:
                last = name.rpartition(".")[2]
                if last.isidentifier() and not path:
                    return Verdict(Use.UNKNOWN, False, f"given to `{last}`, whose use is not shown")
                if key := next((each for each in path if DEVICE.fullmatch(each.lower())), ""):
                    return Verdict(Use.UNKNOWN, False, f'kept under "{key}", whose use is not shown')
                if path or name.endswith("()"):
                    return Verdict(Use.UNKNOWN, False, "in a collection or result, whose use is not shown")
        return WORD_HERE

    def _may_be_looked_up(self, container: str) -> bool:
        """Whether a variable that is named like a device is a key of a container."""
        keys = self._graph.backward({container: ""}, path=(KEYS,))
        return any(not path and DEVICE.fullmatch(slot.rpartition(".")[2]) for slot, path in keys)

    def _met(self, slot: str) -> Verdict | None:
        """Return what a string is that is compared with a device, or looked up by one."""
        for node in self._graph.forward([slot]):
            if node[1] and node[0].endswith(COMPARED) and self._has_device_at(node):
                return Verdict(Use.DEVICE, True, "compared with a device, as an element of a collection")
            if node not in self._given[0] or node[0] == TEXT:  # a device is printed too
                continue
            if node[1] == (KEYS,):
                return Verdict(Use.KEY, True, "a device type is looked up among keys like it")
            if not node[1]:
                return Verdict(Use.DEVICE, True, "compared with a device")
        return None

    def _has_device_at(self, node: Node) -> bool:
        """Whether an element of a collection is compared with one that is a device."""
        slot, path = node
        paths = itertools.product(*({key, ANY} for key in path))
        return KEYS not in path and any((slot, each) in self._given[0] for each in paths)

    def _value(self, slot: str) -> Verdict:
        """Return what an operand or receiver is."""
        node = (slot, ())
        if node in self._given[0] or node in self._named:
            return Verdict(Use.DEVICE, True, "has the value of a device")
        for certain in (0, 1):
            for use in (Use.DEVICE, Use.BACKEND):
                why = self._by_sink(slot, use, certain)
                if why:
                    return Verdict(use, certain == 0, f"passed to {why}")
        if node in self._given[1]:
            return Verdict(Use.DEVICE, False, "may have the value of a device")
        if DEVICE.fullmatch(slot.rpartition(".")[2]):
            return Verdict(Use.DEVICE, False, "is named like a device")
        if node in self._met_by_words:
            return WORD_HERE
        return UNKNOWN

    def _by_sink(self, slot: str, use: Use, level: int) -> str:
        """Return the place where the values of a slot are used so; level 1 follows uncertain flows too."""
        return self._taken[use][level].get((slot, ()), "")
