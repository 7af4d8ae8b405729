"""The first call at which two jobs differ, and what is wrong there."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from isthmus_diagnostics.accuracy import replaying
from isthmus_diagnostics.accuracy.gathering import by_rank, distance, special, worst
from isthmus_diagnostics.accuracy.judging import Judged
from isthmus_diagnostics.accuracy.metrics import tolerance
from isthmus_diagnostics.accuracy.pairing import key
from isthmus_diagnostics.accuracy.reading import Content, Place, Recorded

# The error of a result may be this many times that of its inputs.
_GROWTH = 100.0
# Statistics of the same elements in another order differ by less.
_SAME = 1e-6
# Calls after a module that show whether a difference inside it matters.
_WITNESSES = 20
_LASTING = 10.0
_UNREDUCED = "is right only if the ranks' parts of it are put together; a reduction is missing"
# Operators that leave elements in their order.
_IN_PLACE = {
    f"aten::{name}" for name in "alias clone contiguous detach expand squeeze to unsqueeze view".split()
}
_PASSED_ON = _IN_PLACE | {"aten::t", "aten::transpose", "aten::permute"}
# Views of a part, such as a rank takes of what is the same on all ranks.
_PARTS = {
    f"aten::{name}"
    for name in """chunk index_select narrow select slice split split_with_sizes tensor_split unbind unsafe_chunk
    unsafe_split unsafe_split_with_sizes""".split()
}
_MOVERS = {f"aten::{name}" for name in "cat flip gather index index_select permute roll stack".split()} | {
    "c10d::allgather", "c10d::alltoall", "c10d::alltoall_base",
    "_c10d_functional::all_gather_into_tensor", "_c10d_functional::all_to_all_single",
}  # fmt: skip


@dataclass(frozen=True)
class Guilty:
    """The first difference.

    Attributes:
        call: what is accused: the call of the side that is wrong where that is known, else of A.
        reason: one line.
        inputs_equal: whether the call's inputs were still equal.
        judged: the pair at which it shows; the call itself, or the first one that uses its result.
        side: "A", "B" or "" if both or either may be wrong.
        others: calls of the other side in its place.
        ranks: those on which it shows, of the job that has the call, or of both; () if that is not known.
        is_of_several: whether a job has several ranks.
    """

    call: Recorded
    reason: str
    inputs_equal: bool
    judged: Judged
    side: str = ""
    others: tuple[Recorded, ...] = ()
    ranks: tuple[int, ...] = ()
    is_of_several: bool = False


class Search:
    """Finds the first difference.

    Args:
        rows: all pairs in order, judged.
    """

    def __init__(self, rows: list[Judged]) -> None:
        calls = [row for row in rows if not row.pair.is_module]
        # If only modules are in both dumps, the modules.
        self._has_operators = any(row.pair.is_matched for row in calls)
        self.rows = calls if self._has_operators else rows
        # Modules of which one side has calls that the other has not, and of which both have.
        alone = [
            {row.pair.first.place for row in self.rows if row.verdict == f"only in {side}"} for side in "AB"
        ]
        self._uneven, self._rewritten = alone[0] | alone[1], alone[0] & alone[1]
        self._index = {id(row): index for index, row in enumerate(self.rows)}
        self._of: dict[int, Judged] = {}
        for row in self.rows:
            for call in (*row.pair.a, *row.pair.b):
                self._of[id(call)] = row

    def first_difference(self) -> Guilty | None:
        """Return the first difference, or None."""
        for row in self.rows:
            if (
                row.pair.is_matched
                and (found := self._accuse(row))
                and self._lasts(row, self._rewritten, found.call)
            ):
                return self._with_ranks(found)
        return None

    def _with_ranks(self, found: Guilty) -> Guilty:
        """Name the ranks on which a difference shows, and accuse the call of the first of them."""
        pair = self._of[id(found.call)].pair
        calls = next(side for side in (pair.a, pair.b) if found.call in side)
        shown = self._ranks_that_differ(found.judged)
        ranks = [call.rank for call in calls if call.rank in shown] or shown
        if not pair.is_matched:
            ranks = [call.rank for call in calls if call.rank in shown] or [call.rank for call in calls]
        call = next((each for each in calls if each.rank in ranks), found.call)
        is_of_several = any(each.rank > 0 for row in self.rows for each in (*row.pair.a, *row.pair.b))
        return replace(found, call=call, ranks=tuple(ranks), is_of_several=is_of_several)

    def _ranks_that_differ(self, row: Judged) -> list[int]:
        """Return the ranks whose arguments, results or inputs differ, in this order; [] if only the whole tells."""
        a, b = row.pair.a, row.pair.b
        ranks = [call.rank for call in (b if len(b) > len(a) else a)]
        if len(a) == len(b):
            of = [
                x
                for x, y in zip(a, b, strict=True)
                if any(x.arguments.get(n) != y.arguments.get(n) for n in row.arguments)
            ]
            if of:
                return [each.rank for each in of]
        elif min(len(a), len(b)) > 1:
            return []
        for named, distances in ((row.pair.outputs(), row.outputs), (row.pair.inputs(), row.inputs)):
            wrong: set[int] = set()
            for name, x, y in named:
                if distances[name].error > row.tolerance:
                    errors = zip(ranks, by_rank(x, y), strict=True)
                    wrong |= {rank for rank, error in errors if error > row.tolerance}
            if wrong and (len(a) == len(b) or len(wrong) < len(ranks)):
                return sorted(wrong)
        if len(a) == len(b) and any(x.gradients != y.gradients for x, y in zip(a, b, strict=True)):
            return [x.rank for x, y in zip(a, b, strict=True) if x.gradients != y.gradients]
        return []

    def _lasts(self, row: Judged, places: set[Place], *calls: Recorded) -> bool:
        """Return whether a difference inside one of these modules leaves it; its calls may do the same otherwise.

        Args:
            row: where it shows.
            places: the modules.
            calls: earlier ones that the difference may come from.
        """
        if row.pair.first.place not in places or not row.outputs:
            return True
        users = self._users([*row.pair.a, *row.pair.b, *calls], places)
        return any(each.error > _LASTING * each.tolerance for each in islice(users, _WITNESSES))

    def _users(self, sources: list[Recorded], places: set[Place]) -> Iterator[Judged]:
        """Yield the first pairs outside of these modules that use what these calls have led to."""
        tainted = set(map(id, sources))
        start = min(self._index[id(self._of[id(call)])] for call in sources)
        for later in self.rows[start + 1 :]:
            calls = [
                call
                for call in (*later.pair.a, *later.pair.b)
                if any(
                    id(made) in tainted
                    for each in call.inputs.values()
                    for made in each.rank.producers.get(each.number, ())
                    if made.number < call.number
                )
            ]
            tainted.update(map(id, calls))
            if calls and later.pair.first.place not in places and later.pair.is_matched:
                yield later

    def _accuse(self, row: Judged) -> Guilty | None:
        is_told = row.arguments and not self._is_part(row) and not self._is_same(row)
        if is_told and self._lasts(row, self._uneven):
            text = ", ".join(f"{name} is {a} in A and {b} in B" for name, (a, b) in row.arguments.items())
            return Guilty(row.pair.a[0], text, row.input_error <= row.tolerance, row)
        for detect in (
            self._find_missing,
            self._find_missing_gradient,
        ):  # distances of tensors do not show these
            if (found := detect(row)) is not None:
                return found
        if not row.is_beyond and (row.outputs or row.input_error <= row.tolerance):  # a send has no results
            return None
        bad = [name for name, d in row.inputs.items() if d.error > row.tolerance]
        for name in bad:
            if (found := self._trace_input(row, name)) is not None:
                return found
        if bad or row.error <= _GROWTH * row.input_error or self._is_part(row):
            return None
        return self._accuse_operator(row)

    def _is_part(self, row: Judged) -> bool:
        """Whether the call takes a slice, in jobs with different numbers of ranks.

        The difference is judged at the calls that read the slice.
        """
        return len(row.pair.a) != len(row.pair.b) and key(row.pair.first) in _PARTS

    def _is_same(self, row: Judged) -> bool:
        one_rank = len(row.pair.a) == len(row.pair.b) == 1
        if one_rank and any(a[0].shape != b[0].shape for _, a, b in row.pair.outputs()):
            return False
        return all(d.equal or d.error == 0 for d in row.outputs.values()) and bool(row.outputs)

    def _accuse_operator(self, row: Judged) -> Guilty | None:
        """Accuse the call itself, unless a replay of both sides finds it right."""
        if len(row.pair.a) != len(row.pair.b) and (partial := self._find_unreduced(row)) is not None:
            return partial
        if (moved := self._find_reordered(row)) is not None:
            return moved
        wrong = {
            side: replaying.describe_wrong_results(calls)
            for side, calls in (("A", row.pair.a), ("B", row.pair.b))
        }
        if wrong["A"] == "" and wrong["B"] == "":
            return self._find_unreduced(row)
        side = "A" if wrong["A"] and not wrong["B"] else "B" if wrong["B"] and not wrong["A"] else ""
        calls = row.pair.b if side == "B" else row.pair.a
        name, worst = max(row.outputs.items(), key=lambda item: item[1].error)
        reason = f"{name} differs by {worst.error:.3g}, inputs by {row.input_error:.3g}"
        if side:
            reason += f"; {side} is wrong: {wrong[side]}"
        return Guilty(calls[0], reason, True, row, side)

    def _find_reordered(self, row: Judged) -> Guilty | None:
        """Find a call of one side alone that only moves elements, which statistics of the inputs do not show."""
        for name, a, b in row.pair.inputs():
            if row.inputs[name].by != "statistics" or row.inputs[name].error > _SAME:
                continue
            for side, content in (("A", a[0]), ("B", b[0])):
                if (found := self._mover(content)) is not None:
                    reason = (
                        f"{name} of {row.pair.a[0]} has the same statistics; only {side} moves its elements"
                    )
                    return Guilty(found, reason, True, row, side)
        return self._find_moved_before(row)

    def _find_moved_before(self, row: Judged) -> Guilty | None:
        """Find the last earlier call of the module that moves elements differently, if all agrees but order."""
        if any(each.by != "statistics" or each.error > row.tolerance for each in row.inputs.values()):
            return None
        found: list[tuple[int, Guilty]] = []
        for side, calls in (("A", row.pair.a), ("B", row.pair.b)):
            for call in self._ancestors(calls[0], lambda call: call.place == row.pair.first.place):
                before = self._of[id(call)]
                if not before.pair.is_matched and key(call) in _MOVERS:
                    reason = f"inputs of {row.pair.a[0]} have the same statistics; only {side} moves their elements"
                    found.append((call.number, Guilty(call, reason, True, row, side)))
                elif before.pair.is_matched and not before.is_beyond:
                    bad = [name for name, each in before.inputs.items() if each.error > before.tolerance]
                    wired = (self._trace_input(before, name) for name in bad)
                    found += [(call.number, each) for each in wired if each is not None]
        return max(found, key=lambda each: each[0])[1] if found else None

    def _mover(self, content: Content) -> Recorded | None:
        """Return the nearest call of one side alone in the chain of calls that keep a tensor's statistics."""
        source = self._producer(content)
        while source is not None:
            kept = [each for each in source.inputs.values() if _holds_same(each, content)]
            if len(kept) != 1:
                return None
            if not self._is_matched(source) and key(source) not in _IN_PLACE:
                return source
            others = [self._producer(each) for each in source.inputs.values() if each is not kept[0]]
            for other in others:  # such as the indices of a permutation
                if other is not None and not self._is_matched(other) and key(other) not in _IN_PLACE:
                    return other
            source = self._producer(kept[0]) if kept[0] is not content else None
        return None

    def _find_missing(self, row: Judged) -> Guilty | None:
        """Find a tensor that only one side has, such as a gradient."""
        a, b = row.pair.a[0], row.pair.b[0]
        if not a.operator.startswith("optimizer::"):
            return None
        for side, call, other in (("B", a, b), ("A", b, a)):
            for name in call.inputs:
                if name == "gradient" and name not in other.inputs:
                    return Guilty(other, f"no {name} in {side}", False, row, side)
        return None

    def _find_missing_gradient(self, row: Judged) -> Guilty | None:
        """Find an input of which only one side has a gradient."""
        a, b = row.pair.a[0], row.pair.b[0]
        if a.gradients == b.gradients or a.operator != b.operator:
            return None
        if len(row.pair.a) != len(row.pair.b):  # the functions around collectives hide gradients
            return None
        for name in sorted(a.gradients ^ b.gradients):
            if name not in a.inputs or name not in b.inputs:
                continue
            has, lacks = ("A", "B") if name in a.gradients else ("B", "A")
            for call, side in ((a, "A"), (b, "B")):
                alone = [c for c in self._passing_calls(call, call.inputs[name]) if not self._is_matched(c)]
                if alone and side == lacks:
                    reason = f"{name} of {a} has a gradient in {has} and none after this call"
                    return Guilty(alone[-1], reason, True, row, side)
            user = a if lacks == "A" else b
            content = user.inputs[name]
            made = [] if content.name else self._passing_calls(user, content)
            reason = f"{name} of {user} has a gradient in {has} only"
            return Guilty(made[0] if made else user, reason, True, row, lacks)
        return None

    def _is_matched(self, call: Recorded) -> bool:
        return self._of[id(call)].pair.is_matched

    def _passing_calls(self, user: Recorded, content: Content) -> list[Recorded]:
        """Return the calls before a user of a tensor that return it."""
        calls = content.rank.producers.get(content.number, [])
        return [call for call in calls if call.number < user.number]

    def _trace_input(self, row: Judged, name: str) -> Guilty | None:
        """Return the source of a different input, if no earlier pair returned it."""
        a, b = next((x, y) for each, x, y in row.pair.inputs() if each == name)
        parts = worst(a, b) if len(a) == len(b) else (self._strangest_part(a), self._strangest_part(b))
        sources = [self._producer(part) for part in parts]
        if all(source is None for source in sources):
            what = a[0].name or b[0].name or "data"
            if any(part.unwritten for part in (*a, *b)):
                what = "memory that no call has written"
            reason = f"{name} ({what}) differs by {row.inputs[name].error:.3g} and no call has computed it"
            return Guilty(row.pair.a[0], reason, False, row)
        if all(source is not None and self._is_matched(source) for source in sources):
            return self._accuse_wiring(row, name, sources, parts)
        before = max(self._entry_error(part) for part in parts)
        if row.inputs[name].error <= _GROWTH * before:
            return None
        what = f"differs by {row.inputs[name].error:.3g}"
        return self._accuse_unpaired(row, name, sources, (a, b), what, before == 0)

    def _find_unreduced(self, row: Judged) -> Guilty | None:
        """Accuse the call itself, if it takes an input that is right only as a sum over ranks, and returns no sum."""
        for name, each in row.inputs.items():
            if "sum" in each.gathered:
                return Guilty(row.pair.a[0], f"{name} {_UNREDUCED}", True, row)
        return None

    def _strangest_part(self, parts: list[Content]) -> Content:
        """Return the part of the rank with the most NaN and infinities, then with the most calls of its own."""

        def own(part: Content) -> int:
            source = self._producer(part)
            return 0 if source is None else len(self._unpaired_chain(source))

        return max(parts, key=lambda part: (special(part), own(part)))

    def _accuse_wiring(
        self, row: Judged, name: str, sources: list[Recorded | None], parts: tuple[Content, Content]
    ) -> Guilty | None:
        """Accuse the call itself, if the sides take an input from different calls; else the error came with it."""
        of_a, of_b = (self._of[id(source)] for source in sources)
        if of_a is of_b and self._is_part(of_a):
            reason = f"the parts that the ranks take are not those of {name} of {row.pair.a[0]}"
            return Guilty(of_a.pair.a[0], reason, True, row)
        if of_a is of_b:
            taken = [_result(source, part) for source, part in zip(sources, parts, strict=True)]
            if taken[0] != taken[1] and not of_a.is_beyond:
                reason = f"{name} is {taken[0]} of {sources[0]} in A and {taken[1]} in B"
                return Guilty(row.pair.a[0], reason, True, row)
            if of_a.is_beyond or len(row.pair.a) == len(row.pair.b):
                return None
            reason = f"{name} {_UNREDUCED}"
            return Guilty(row.pair.a[0], reason, True, row)
        makers = [self._maker(source) for source in sources if source is not None]
        if self._of[id(makers[0])] is self._of[id(makers[1])]:
            return None
        reason = f"{name} is the result of {sources[0]} in A and of {sources[1]} in B"
        return Guilty(row.pair.a[0], reason, False, row)

    def _maker(self, call: Recorded) -> Recorded:
        """Return the call before views and casts."""
        while key(call) in _PASSED_ON and len(call.inputs) == 1:
            before = self._producer(next(iter(call.inputs.values())))
            if before is None or before.number >= call.number:
                break
            call = before
        return call

    def _accuse_unpaired(
        self,
        row: Judged,
        name: str,
        sources: list[Recorded | None],
        parts: tuple[list[Content], list[Content]],
        what: str,
        equal: bool,
    ) -> Guilty:
        """Accuse the first call that only one side has, of those that lead to an input."""
        chains = [
            self._after_right(self._unpaired_chain(source), other) if source is not None else []
            for source, other in zip(sources, reversed(parts), strict=True)
        ]
        telling = [[each for each in chain if key(each) not in _IN_PLACE] for chain in chains]
        chains = telling if any(telling) else chains
        side = "A" if chains[0] else "B"
        chain = chains[0] or chains[1] or [row.pair.a[0]]
        others = tuple(each for each in (*chain[1:], *chains[1], *sources) if each is not None)
        reason = f"{name} of {row.pair.a[0]} {what}; only {side} computes it by {chain[0].operator}"
        is_both = bool(chains[0] and chains[1])
        return Guilty(
            chain[0], reason, equal, row, "" if is_both else side, _without_repeats(chain[0], others)
        )

    def _unpaired_chain(self, source: Recorded) -> list[Recorded]:
        """Return the calls of one side alone that lead to a call's result, itself included, in order."""
        found = self._ancestors(source, lambda call: not self._is_matched(call))
        return sorted(found, key=lambda call: call.number)

    def _ancestors(self, call: Recorded, goes_on: Callable[[Recorded], bool]) -> Iterator[Recorded]:
        """Yield a call and those that lead to its inputs, the latest input first, as far as they go on."""
        left, seen = [call], set()
        while left:
            call = left.pop()
            if id(call) in seen or not goes_on(call):
                continue
            seen.add(id(call))
            yield call
            left += [made for each in call.inputs.values() if (made := self._producer(each)) is not None]

    def _after_right(self, chain: list[Recorded], other: list[Content]) -> list[Recorded]:
        """Return the calls of a chain after the last one whose result is still what the other side has."""
        for index in range(len(chain) - 1, -1, -1):
            pair = self._of[id(chain[index])].pair
            names = chain[index].outputs.keys()
            results = ([c.outputs[name] for c in (pair.a or pair.b) if name in c.outputs] for name in names)
            if any(distance(made, other).error <= tolerance(other[0].dtype) for made in results):
                return chain[index + 1 :] or chain
        return chain

    def _producer(self, content: Content) -> Recorded | None:
        if not self._has_operators:
            return None
        return next(iter(content.rank.producers.get(content.number, [])), None)

    def _entry_error(self, content: Content, seen: set[int] | None = None) -> float:
        """Return the largest error of the paired results that the unpaired calls leading to a tensor have taken."""
        seen = set() if seen is None else seen
        source = self._producer(content)
        if source is None or id(source) in seen:
            return 0.0
        seen.add(id(source))
        row = self._of.get(id(source))
        if row is not None and row.pair.is_matched:
            return row.error
        return max((self._entry_error(each, seen) for each in source.inputs.values()), default=0.0)


def _result(call: Recorded | None, content: Content) -> str:
    """Return the name of a tensor among the results of a call, or ""."""
    outputs = {} if call is None else call.outputs
    return next((name for name, each in outputs.items() if each.number == content.number), "")


def _holds_same(a: Content, b: Content) -> bool:
    """Return whether two tensors have the same elements, as far as statistics tell."""
    s, t = a.statistics, b.statistics
    if s is None or t is None or math.prod(a.shape) != math.prod(b.shape):
        return False
    return (s.min, s.max, s.nans) == (t.min, t.max, t.nans) and math.isclose(s.norm, t.norm, rel_tol=_SAME)


def _without_repeats(call: Recorded, others: tuple[Recorded, ...]) -> tuple[Recorded, ...]:
    return tuple(each for each in dict.fromkeys(others) if each is not call)
