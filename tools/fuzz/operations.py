"""Random operators of a program: each draws operands from a pool of tensors and returns a step."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

FLOATING = (torch.float32, torch.float64)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
DTYPES = (*FLOATING, *INTEGERS, torch.bool)
LARGEST = 600  # elements of a result; larger ones leave the program
Pool = Sequence[torch.Tensor]
Function = Callable[[Pool], Any]


@dataclass(frozen=True)
class Step:
    """One operator call on tensors of the pool."""

    name: str
    function: Function
    captured: bool = True  # may stand in a graph: its result's shape depends on no value


def values(draw: random.Random, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return a CPU tensor of small numbers, now and then of the largest and smallest, nan, inf and -0."""
    count = math.prod(shape)
    if dtype is torch.bool:
        found: list[Any] = [draw.random() < 0.5 for _ in range(count)]
    elif dtype.is_floating_point:
        special = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 65504.0, 3.5, 2.0**24 + 1]
        found = [
            draw.choice(special) if draw.random() < 0.05 else round(draw.uniform(-4, 4), 3)
            for _ in range(count)
        ]
    else:
        limits = torch.iinfo(dtype)
        special = [limits.max, limits.min + 1, limits.max // 2 + 1, min(limits.max, 2**53 + 1)]
        small = range(max(limits.min, -6), 7)
        found = [draw.choice(special) if draw.random() < 0.08 else draw.choice(small) for _ in range(count)]
    return torch.tensor(found, dtype=dtype).reshape(tuple(shape))


def indices(draw: random.Random, shape: Sequence[int], size: int, errors: bool) -> torch.Tensor:
    """Return int64 indices below a size; with errors now and then one beyond either end."""
    count = math.prod(shape)
    found = [draw.randrange(max(size, 1)) for _ in range(count)]
    if errors and found and draw.random() < 0.3:
        found[draw.randrange(count)] = draw.choice([-1, size, -size - 1, size + 7, 2**62, -(2**63)])
    return torch.tensor(found, dtype=torch.int64).reshape(tuple(shape))


class _DoesNotFitError(Exception):
    """No tensor of the pool fits."""


class Operations:
    """Draws steps for a pool that it sees on the CPU.

    Args:
        draw: source of all decisions.
        pool: tensors on the CPU, in step with those of the chip.
        add: appends a constant operand to the pool and returns its place.
        errors: whether indices may be out of range.
    """

    def __init__(
        self, draw: random.Random, pool: list[torch.Tensor], add: Callable[[torch.Tensor], int], errors: bool
    ) -> None:
        self.draw, self.pool, self.add, self.errors = draw, pool, add, errors

    def step(self) -> Step:
        """Draw an operator that fits the pool."""
        while True:
            name = self.draw.choice(NAMES)
            with suppress(_DoesNotFitError):
                if (found := getattr(self, f"_{name}")()) is not None:
                    return found

    # ---- operands

    def _find(self, accepts: Callable[[torch.Tensor], bool]) -> int | None:
        places = [place for place, tensor in enumerate(self.pool) if accepts(tensor)]
        return self.draw.choice(places) if places else None

    def _any(self, accepts: Callable[[torch.Tensor], bool] = lambda tensor: True) -> int:
        """Return the place of a tensor that a step can take; without one, another step is drawn."""
        place = self._find(accepts)
        if place is None:
            raise _DoesNotFitError
        return place

    def _number(self, like: torch.Tensor | None = None) -> Any:
        if like is not None and like.dtype is torch.bool:
            return self.draw.choice([True, False, 1, 2.5])
        return self.draw.choice([0, 1, -1, 2, -3, 7, 0.5, -2.25, 1.0, True])

    def _broadcastable(self, with_: torch.Tensor) -> int:
        def fits(tensor: torch.Tensor) -> bool:
            try:
                return torch.broadcast_shapes(tensor.shape, with_.shape).numel() <= LARGEST
            except RuntimeError:
                return False

        return self._any(fits)

    def _dim(self, tensor: torch.Tensor) -> int:
        return self.draw.randrange(-max(tensor.dim(), 1), max(tensor.dim(), 1))

    def _index(self, shape: Sequence[int], size: int) -> int:
        return self.add(indices(self.draw, shape, size, self.errors))

    def _out(self, name: str, call: Function) -> Step:
        """Return the call, or now and then its out= variant over fresh memory or a part of a larger tensor."""
        kind = self.draw.choice(["plain", "plain", "empty", "fitting", "part", "dtype"])
        if kind == "plain":
            return Step(name, call)
        try:
            result = call(self.pool)
        except Exception:  # the call itself is refused: compare that
            return Step(name, call)
        if not isinstance(result, torch.Tensor):
            return Step(name, call)
        dtype = self.draw.choice(DTYPES) if kind == "dtype" else result.dtype
        if kind == "part":
            whole = self.add(torch.zeros(result.numel() + 5, dtype=dtype))
            begin, end = self.draw.choice([(2, 2), (1, 1 + result.numel()), (0, 0)])
            return Step(f"{name}.out of a part", lambda pool: call(pool, out=pool[whole][begin:end]))
        out = self.add(torch.zeros((0,) if kind == "empty" else result.shape, dtype=dtype))
        return Step(f"{name}.out {kind} {dtype}", lambda pool: call(pool, out=pool[out]))

    # ---- elementwise

    def _unary(self) -> Step:
        name = self.draw.choice(
            "neg abs sign floor ceil trunc round relu sqrt exp sin tanh sigmoid reciprocal square logical_not "
            "bitwise_not isnan isinf signbit positive log1p erf".split()
        )
        place = self._any()
        if self.draw.random() < 0.3 and hasattr(torch.Tensor, f"{name}_"):
            return Step(f"{name}_", lambda pool: getattr(pool[place], f"{name}_")())
        function = getattr(torch, name)
        if name == "relu":
            return Step(name, lambda pool: function(pool[place]))
        return self._out(name, lambda pool, **out: function(pool[place], **out))

    def _binary(self) -> Step:
        name = self.draw.choice(
            "add sub mul div maximum minimum eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and "
            "bitwise_or bitwise_xor atan2 fmax fmin copysign hypot".split()
        )
        place = self._any()
        tensor_only = "maximum minimum fmax fmin atan2 hypot logical_and logical_or logical_xor".split()
        if self.draw.random() < 0.3 and name not in tensor_only:
            number = self._number()
            if self.draw.random() < 0.4 and hasattr(torch.Tensor, f"{name}_"):
                return Step(f"{name}_ number", lambda pool: getattr(pool[place], f"{name}_")(number))
            return Step(f"{name} number", lambda pool: getattr(torch, name)(pool[place], number))
        other = self._broadcastable(self.pool[place])
        if self.draw.random() < 0.25 and hasattr(torch.Tensor, f"{name}_"):
            return Step(f"{name}_", lambda pool: getattr(pool[place], f"{name}_")(pool[other]))
        return self._out(name, lambda pool, **out: getattr(torch, name)(pool[place], pool[other], **out))

    def _with_alpha(self) -> Step:
        name, place = self.draw.choice(["add", "sub"]), self._any()
        other, alpha = self._broadcastable(self.pool[place]), self._number()
        return self._out(
            f"{name} alpha",
            lambda pool, **out: getattr(torch, name)(pool[place], pool[other], alpha=alpha, **out),
        )

    def _division(self) -> Step | None:
        """Divide by positive numbers, as integer division by zero or of the minimum ends a process on the CPU."""
        name = self.draw.choice(["trunc", "floor", "floor_divide", "remainder", "fmod"])
        place = self._any(lambda tensor: tensor.dtype is not torch.bool)
        other = self._broadcastable(self.pool[place])
        if self.pool[other].dtype is torch.bool:
            return None

        def call(pool: Pool, **out: Any) -> Any:
            divisor = pool[other].clamp(min=1)
            if name in ("trunc", "floor"):
                return torch.div(pool[place], divisor, rounding_mode=name, **out)
            return getattr(torch, name)(pool[place], divisor, **out)

        return self._out(f"division {name}", call)

    def _clamp(self) -> Step:
        place = self._any()
        low, high = self.draw.choice([(-2, 2), (0.5, None), (None, 1), (-1.5, 3), (0, 1.5)])
        if self.draw.random() < 0.3:
            return Step("clamp_", lambda pool: pool[place].clamp_(low, high))
        return self._out("clamp", lambda pool, **out: torch.clamp(pool[place], low, high, **out))

    def _where(self) -> Step:
        place = self._any()
        other = self._broadcastable(self.pool[place])
        if self.draw.random() < 0.5:
            number = self._number()
            return Step("masked_fill", lambda pool: pool[place].masked_fill(pool[other] > 0, number))
        return Step("where", lambda pool: torch.where(pool[other] > 0, pool[place], pool[other]))

    def _three(self) -> Step:
        name = self.draw.choice(["addcmul", "addcdiv", "lerp"])
        place = self._any()
        b, c = self._broadcastable(self.pool[place]), self._broadcastable(self.pool[place])
        function = getattr(torch, name)
        return self._out(name, lambda pool, **out: function(pool[place], pool[b], pool[c], **out))

    def _convert(self) -> Step:
        place, dtype = self._any(), self.draw.choice(DTYPES)
        # Numbers beyond the range of an integer have no defined conversion.
        return Step(f"to {dtype}", lambda pool: pool[place].nan_to_num(0, 1, -1).clamp(0, 100).to(dtype))

    def _copy(self) -> Step | None:
        place = self._any()
        source = self._any(lambda tensor: tensor.shape == self.pool[place].shape)
        if self.pool[source].is_floating_point() > self.pool[place].is_floating_point():
            return None  # numbers beyond the range of an integer have no defined conversion
        return Step("copy_", lambda pool: pool[place].copy_(pool[source]))

    def _fill(self) -> Step:
        place = self._any()
        number = self.draw.choice([0, 1, 5])
        return Step("fill_", lambda pool: pool[place].fill_(number))

    # ---- reductions

    def _reduction(self) -> Step:
        name = self.draw.choice(
            "sum mean amax amin prod any all argmax argmin cumsum cumprod logsumexp var".split()
        )
        place = self._any()
        dim, keepdim = self._dim(self.pool[place]), self.draw.random() < 0.5
        function = getattr(torch, name)
        if name in ("cumsum", "cumprod"):
            dtype = self.draw.choice([None, torch.float64, torch.int64])
            if dtype is not None and not dtype.is_floating_point and self.pool[place].is_floating_point():
                dtype = None
            return self._out(name, lambda pool, **out: function(pool[place], dim, dtype=dtype, **out))
        if name in ("all", "any"):  # out= converts the elements first: 256 is False in uint8
            return Step(name, lambda pool: function(pool[place], dim, keepdim=keepdim))
        if name in ("sum", "mean", "prod") and self.draw.random() < 0.3:
            return Step(f"{name} all", lambda pool: function(pool[place]))
        return self._out(name, lambda pool, **out: function(pool[place], dim, keepdim=keepdim, **out))

    def _order(self) -> Step:
        place = self._any(lambda tensor: tensor.dim() > 0 and tensor.numel() > 0)
        dim = self._dim(self.pool[place])
        if self.draw.random() < 0.5:
            return Step("sort", lambda pool: torch.sort(pool[place], dim, stable=True))
        return Step("cummax", lambda pool: torch.cummax(pool[place], dim))

    def _norm(self) -> Step:
        place = self._any(lambda tensor: tensor.is_floating_point() and tensor.dim() > 0)
        dim = self._dim(self.pool[place])
        name = self.draw.choice(["softmax", "log_softmax", "layer_norm"])
        if name == "layer_norm":
            shape = self.pool[place].shape[-1:]
            return Step(name, lambda pool: torch.layer_norm(pool[place], shape))
        return Step(name, lambda pool: getattr(torch, name)(pool[place], dim))

    # ---- products

    def _product(self) -> Step:
        place = self._any(lambda tensor: tensor.dim() == 2 and tensor.dtype is not torch.bool)
        a = self.pool[place]
        other = self._find(lambda b: b.dim() == 2 and b.shape[0] == a.shape[1] and b.dtype == a.dtype)
        if other is None:
            return Step("mm with itself", lambda pool: torch.mm(pool[place], pool[place].t()))
        third = self._find(
            lambda c: c.dtype == a.dtype and c.shape == (a.shape[0], self.pool[other].shape[1])
        )
        if third is not None and self.draw.random() < 0.6:
            beta, alpha = self.draw.choice([(0, 1), (1, 1), (0.5, 2), (2, 0)])
            if not a.is_floating_point():
                beta, alpha = int(beta), int(alpha)
            return self._out(
                "addmm",
                lambda pool, **out: torch.addmm(
                    pool[third], pool[place], pool[other], beta=beta, alpha=alpha, **out
                ),
            )
        return self._out("mm", lambda pool, **out: torch.mm(pool[place], pool[other], **out))

    # ---- views

    def _view(self) -> Step | None:
        place = self._any(lambda tensor: tensor.dim() > 0)
        tensor = self.pool[place]
        dim = self._dim(tensor)
        size = tensor.shape[dim]
        kind = self.draw.choice(["t", "slice", "select", "expand", "flat", "diagonal", "unfold"])
        if kind == "t":
            other = self._dim(tensor)
            return Step(kind, lambda pool: pool[place].transpose(dim, other))
        if kind == "slice":
            begin, step = self.draw.randrange(size + 1), self.draw.choice([1, 1, 2])
            index = (slice(None),) * (dim % tensor.dim()) + (slice(begin, None, step),)
            return Step(kind, lambda pool: pool[place][index])
        if kind == "select" and size:
            at = self.draw.randrange(-size, size)
            return Step(kind, lambda pool: pool[place].select(dim, at))
        if kind == "expand":
            return Step(kind, lambda pool: pool[place].unsqueeze(0).expand(2, *tensor.shape))
        if kind == "flat":
            return Step(kind, lambda pool: pool[place].reshape(-1))
        if kind == "diagonal" and tensor.dim() > 1:
            return Step(kind, lambda pool: pool[place].diagonal())
        if kind == "unfold" and size > 1:
            return Step(
                kind, lambda pool: pool[place].unfold(dim, 2, 2)
            )  # in-place calls need distinct elements
        return None

    def _join(self) -> Step:
        place = self._any(lambda tensor: tensor.dim() > 0)
        shape, dim = self.pool[place].shape, self._dim(self.pool[place])
        other = self._any(lambda tensor: tensor.shape == shape)
        if self.draw.random() < 0.5:
            return self._out(
                "cat", lambda pool, **out: torch.cat([pool[place], pool[other], pool[place]], dim, **out)
            )
        return self._out("stack", lambda pool, **out: torch.stack([pool[place], pool[other]], dim, **out))

    def _split(self) -> Step:
        place = self._any(lambda tensor: tensor.dim() > 0 and tensor.numel() > 0)
        dim = self._dim(self.pool[place])
        return Step("chunk", lambda pool: torch.chunk(pool[place], 2, dim))

    # ---- indices

    def _by_index(self) -> Step:
        place = self._any(lambda tensor: tensor.dim() > 0)
        tensor = self.pool[place]
        dim = self._dim(tensor)
        size, count = tensor.shape[dim], self.draw.choice([0, 1, 3, 5])
        name = self.draw.choice(
            "index_select gather take index index_fill index_copy_ index_add scatter scatter_value scatter_add "
            "scatter_reduce index_put put embedding one_hot".split()
        )
        rows = list(tensor.shape)
        rows[dim] = count
        function = getattr(torch, name, None)
        if name in ("index_select", "gather"):
            at = self._index(rows if name == "gather" else [count], size)
            return self._out(name, lambda pool, **out: function(pool[place], dim, pool[at], **out))
        if name == "take":
            at = self._index([count], tensor.numel())
            return Step(name, lambda pool: torch.take(pool[place], pool[at]))
        if name == "index":
            at = self._index([count], tensor.shape[0])
            return Step(name, lambda pool: pool[place][pool[at]])
        if name == "index_fill":
            at = self._index([count], size)
            return Step(name, lambda pool: pool[place].index_fill(dim, pool[at], 3))
        if name == "embedding":
            table = self._any(lambda each: each.dim() == 2 and each.is_floating_point())
            at = self._index([2, count], self.pool[table].shape[0])
            return Step(name, lambda pool: torch.embedding(pool[table], pool[at]))
        if name == "one_hot":
            at = self._index([count], 4)
            return Step(name, lambda pool: torch.nn.functional.one_hot(pool[at], 4))
        if name in ("put", "index_put"):
            source, accumulate = self.add(values(self.draw, [count], tensor.dtype)), self.draw.random() < 0.5
            if name == "put":
                at = self._index([count], tensor.numel())
                return Step(name, lambda pool: torch.put(pool[place], pool[at], pool[source], accumulate))
            at, several = self._index([count], tensor.shape[0]), tensor.dim() > 1

            def put(pool: Pool) -> Any:
                new = pool[place][:1] if several else pool[source]
                return pool[place].index_put((pool[at],), new, accumulate)

            return Step(name, put)
        if name in ("index_copy_", "index_add"):
            # Any of several rows for one place may remain, so places differ.
            at = self._index([count], size) if name == "index_add" else self._index([min(count, 1)], size)
            rows[dim] = self.pool[at].numel()
            source = self.add(values(self.draw, rows, tensor.dtype))
            if name == "index_add":
                return self._out(
                    name, lambda pool, **out: torch.index_add(pool[place], dim, pool[at], pool[source], **out)
                )
            return Step(name, lambda pool: pool[place].index_copy_(dim, pool[at], pool[source]))
        if name == "scatter":
            rows[dim] = min(count, 1)
        at = self._index(rows, size)
        source = self.add(values(self.draw, rows, tensor.dtype))
        if name == "scatter_value":
            return Step(name, lambda pool: torch.scatter(pool[place], dim, pool[at], 2))
        if name == "scatter_reduce":
            how = self.draw.choice(["sum", "prod", "mean", "amax", "amin"])
            own = self.draw.random() < 0.5
            return Step(
                f"{name} {how}",
                lambda pool: torch.scatter_reduce(
                    pool[place], dim, pool[at], pool[source], how, include_self=own
                ),
            )
        return self._out(name, lambda pool, **out: function(pool[place], dim, pool[at], pool[source], **out))

    # ---- lists

    def _foreach(self) -> Step | None:
        bases = [
            i for i, tensor in enumerate(self.pool) if tensor.is_contiguous() and tensor.is_floating_point()
        ]
        places = self.draw.sample(bases, min(len(bases), self.draw.choice([1, 2, 3])))
        if not places:
            return None
        shared = self.draw.choice([None, None, "twice", "view"])  # entries that share memory
        name = self.draw.choice("add mul sub div neg abs sqrt zero addcmul lerp copy maximum".split())
        number = self.draw.choice([2, 0.5, -3])
        in_place = "" if name not in ("zero", "copy") and self.draw.random() < 0.4 else "_"
        function = getattr(torch, f"_foreach_{name}{in_place}")

        def call(pool: Pool) -> Any:
            tensors = [pool[place] for place in places]
            if shared is not None:
                tensors.append(tensors[0].view(-1)[1:] if shared == "view" else tensors[0])
            if name in ("neg", "abs", "sqrt", "zero"):
                return function(tensors)
            if name == "maximum":
                return function(tensors, number)
            if name == "addcmul":
                return function(tensors, [each * 2 for each in tensors], tensors, value=number)
            if name == "lerp":
                return function(tensors, [each * 2 for each in tensors], 0.25)
            if name == "copy":
                return function(tensors, [each + 1 for each in tensors])
            return function(tensors, number)

        return Step(f"_foreach_{name}{in_place}", call)

    # ---- shapes that depend on values

    def _values(self) -> Step | None:
        name, place = self.draw.choice(["nonzero", "masked_select", "unique", "item"]), self._any()
        if name == "masked_select":
            return Step(name, lambda pool: torch.masked_select(pool[place], pool[place] > 0), captured=False)
        if name == "item":
            return Step(
                name,
                lambda pool: torch.full((), pool[place].sum().item(), device=pool[place].device),
                captured=False,
            )
        if name == "unique" and self.pool[place].isnan().any():
            return None
        return Step(name, lambda pool: getattr(torch, name)(pool[place]), captured=False)


NAMES = (
    "unary unary binary binary binary with_alpha division clamp where three convert copy fill reduction reduction "
    "order norm product view view view join split by_index by_index by_index foreach foreach values"
).split()
