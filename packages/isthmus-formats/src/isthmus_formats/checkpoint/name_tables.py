"""Tables of names: which stored tensor holds which parameters, and how they are fused.

A line is ``stored name = role role ... | fusion``. ``{layer}`` and ``{expert}`` stand for the indices, ``*`` for
``weight`` or ``bias``, and ``{experts}`` in a role for every expert in turn. Fusions:

=============  =======================================================================================
grouped        the rows of q, k and v alternate by query group
rows           the rows of the parts alternate one by one
stacked        experts are stacked along a first dimension
transposed     the last two dimensions are swapped
=============  =======================================================================================

Several roles without a fusion are concatenated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from isthmus_formats.checkpoint.errors import CheckpointError
from isthmus_formats.checkpoint.layout import Parameter, Piece, Slice


@dataclass(frozen=True, slots=True)
class Rule:
    """A line of a table."""

    stored: str
    roles: tuple[str, ...]
    fusion: frozenset[str]


@dataclass(frozen=True, slots=True)
class Fused:
    """The parameters of one stored tensor before they are sharded.

    Attributes:
        rule: the line that applies.
        parameters: what it holds.
        kind: ``"weight"`` or ``"bias"``, for ``*``.
    """

    rule: Rule
    parameters: tuple[Parameter, ...]
    kind: str

    @property
    def layer(self) -> int | None:
        """The layer of its parameters."""
        return self.parameters[0].layer

    @property
    def expert(self) -> int | None:
        """The expert of its parameters; None if there are several."""
        return None if "{experts}" in self.rule.roles[0] else self.parameters[0].expert

    def key(self, layer: int | None = None, expert: int | None = None) -> str:
        """Return the stored name, by default with the layer and expert of the model."""
        layer = self.layer if layer is None else layer
        expert = self.expert if expert is None else expert
        name = self.rule.stored.replace("{layer}", str(layer)).replace("{expert}", str(expert))
        return name.replace("*", self.kind)

    def piece(
        self,
        file: str,
        key: str,
        slices: Sequence[tuple[Slice, int]],
        groups: int,
        *,
        interleaved: bool = False,
        replica: bool = False,
    ) -> Piece:
        """Return the piece of given slices.

        Args:
            file: its file.
            key: its name there.
            slices: slices, and their rows with padding.
            groups: query groups of these slices.
            interleaved: rotary pairs are neighbours.
            replica: another piece has the same slices.
        """
        fusion = self.rule.fusion
        parts = tuple(each for each, _ in slices)
        stack = len({each.parameter.expert for each in parts}) if "stacked" in fusion else 0
        blocks = groups if "grouped" in fusion else parts[0].shape[0] if "rows" in fusion else 1
        rows = slices[0][1]
        return Piece(
            file, key, parts, blocks, stack, "transposed" in fusion, interleaved, rows, replica=replica
        )


def table(text: str) -> tuple[Rule, ...]:
    """Return the rules of a table."""
    rules = []
    for line in filter(None, map(str.strip, text.splitlines())):
        stored, _, rest = line.partition(" = ")
        roles, _, fusion = rest.partition("|")
        rules.append(Rule(stored.strip(), tuple(roles.split()), frozenset(fusion.split())))
    return tuple(rules)


def fuse_by_table(
    rules: Sequence[Rule], parameters: Sequence[Parameter], architecture: str, format: str
) -> Iterator[Fused]:
    """Apply a table to the parameters of a model.

    Raises:
        CheckpointError: the table has no name for a parameter.
    """
    by_role: dict[str, dict[tuple[int | None, int | None], Parameter]] = defaultdict(dict)
    for parameter in parameters:
        by_role[parameter.role][parameter.layer, parameter.expert] = parameter
    named: set[Parameter] = set()
    for rule in rules:
        for each in _apply_rule(rule, by_role):
            named.update(each.parameters)
            yield each
    if missing := [each.name for each in parameters if each not in named]:
        raise CheckpointError(
            f"{format} has no name for {missing[0]} of the architecture {architecture}"
            + (f", nor for {len(missing) - 1} more parameters" if len(missing) > 1 else "")
        )


def _apply_rule(
    rule: Rule, by_role: dict[str, dict[tuple[int | None, int | None], Parameter]]
) -> Iterator[Fused]:
    for kind in ("weight", "bias") if "*" in rule.roles[0] else ("",):
        roles = [role.replace("*", kind) for role in rule.roles]
        plain = [role.removeprefix("{experts}.") for role in roles]
        found = by_role.get(plain[0], {})
        if roles[0] != plain[0]:
            for layer in {layer for layer, _ in found}:
                experts = sorted(expert for at, expert in found if at == layer and expert is not None)
                together = tuple(by_role[role][layer, expert] for expert in experts for role in plain)
                yield Fused(rule, together, kind)
        else:
            for index in found:
                if all(index in by_role.get(role, {}) for role in plain):
                    yield Fused(rule, tuple(by_role[role][index] for role in plain), kind)
