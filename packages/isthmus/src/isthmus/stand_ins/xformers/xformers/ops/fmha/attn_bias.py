"""Biases of xFormers' attention: causal, local, and block-diagonal ones for packed sequences."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

_Self = TypeVar("_Self", bound="BlockDiagonalMask")
_Device = torch.device | str | None


def _window(
    shape: Sequence[int],
    dtype: torch.dtype,
    device: _Device,
    left: int | None = None,
    right: int | None = None,
    shift: int = 0,
) -> torch.Tensor:
    """0 where a key is visible to a query and -inf elsewhere; ``shift`` is added to the query's position."""
    row = torch.arange(shape[-2], device=device).unsqueeze(1) + shift
    column = torch.arange(shape[-1], device=device)
    hidden = torch.zeros(tuple(shape[-2:]), dtype=torch.bool, device=device)
    if left is not None:
        hidden = hidden | (column < row - left)
    if right is not None:
        hidden = hidden | (column > row + right)
    return torch.zeros(tuple(shape), dtype=dtype, device=device).masked_fill(hidden, -torch.inf)


class AttentionBias:
    """Base class of biases."""

    def materialize(
        self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, device: _Device = "cpu"
    ) -> torch.Tensor:
        """The bias as a tensor of a shape [..., queries, keys]."""
        raise NotImplementedError


class LowerTriangularMask(AttentionBias):
    """Causal mask; the first query is aligned with the first key.

    Args:
        device: ignored.
    """

    def __init__(self, device: _Device = None) -> None:
        pass

    def to(self, device: _Device) -> "LowerTriangularMask":
        """Return the mask, which has no tensors."""
        return self

    def materialize(
        self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, device: _Device = "cpu"
    ) -> torch.Tensor:
        """The bias as a tensor of a shape [..., queries, keys]."""
        return _window(shape, dtype, device, right=0)

    def add_bias(self, bias: torch.Tensor) -> "LowerTriangularMaskWithTensorBias":
        """Return the mask with an added tensor."""
        return LowerTriangularMaskWithTensorBias(bias)


class LowerTriangularMaskWithTensorBias(LowerTriangularMask):
    """Causal mask and an added tensor.

    Args:
        bias: [batch, heads, queries, keys].
    """

    def __init__(self, bias: torch.Tensor) -> None:
        self._bias = bias

    def to(self, device: _Device) -> "LowerTriangularMaskWithTensorBias":
        """Return the mask with its tensor on a device."""
        return LowerTriangularMaskWithTensorBias(self._bias.to(device))

    def materialize(
        self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, device: _Device = "cpu"
    ) -> torch.Tensor:
        """The bias as a tensor of a shape [..., queries, keys]."""
        return super().materialize(shape, dtype, device) + self._bias


class LowerTriangularFromBottomRightMask(AttentionBias):
    """Causal mask; the last query is aligned with the last key."""

    def to(self, device: _Device) -> "LowerTriangularFromBottomRightMask":
        """Return the mask, which has no tensors."""
        return self

    def materialize(
        self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, device: _Device = "cpu"
    ) -> torch.Tensor:
        """The bias as a tensor of a shape [..., queries, keys]."""
        return _window(shape, dtype, device, right=0, shift=shape[-1] - shape[-2])

    def make_local_attention(self, window_size: int) -> "LowerTriangularFromBottomRightLocalAttentionMask":
        """Return the mask limited to the last ``window_size`` keys of each query."""
        return LowerTriangularFromBottomRightLocalAttentionMask(window_size)


@dataclass
class LowerTriangularFromBottomRightLocalAttentionMask(LowerTriangularFromBottomRightMask):
    """Causal mask limited to a window of keys; the last query is aligned with the last key."""

    _window_size: int

    def __post_init__(self) -> None:
        _check_positive(self, self._window_size)

    def materialize(
        self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, device: _Device = "cpu"
    ) -> torch.Tensor:
        """The bias as a tensor of a shape [..., queries, keys]."""
        return _window(shape, dtype, device, self._window_size - 1, 0, shape[-1] - shape[-2])


@dataclass
class LocalAttentionFromBottomRightMask(AttentionBias):
    """Window of keys around each query; the last query is aligned with the last key."""

    window_left: int
    window_right: int

    def __post_init__(self) -> None:
        if min(self.window_left, self.window_right) < 0:
            raise ValueError(
                f"LocalAttentionFromBottomRightMask: windows are {self.window_left} and {self.window_right}; "
                "they must be at least 0"
            )

    def to(self, device: _Device) -> "LocalAttentionFromBottomRightMask":
        """Return the mask, which has no tensors."""
        return self

    def materialize(
        self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, device: _Device = "cpu"
    ) -> torch.Tensor:
        """The bias as a tensor of a shape [..., queries, keys]."""
        return _window(shape, dtype, device, self.window_left, self.window_right, shape[-1] - shape[-2])


@dataclass
class _SeqLenInfo:
    """Starts of packed sequences.

    Attributes:
        seqstart: int32 [sequences + 1] on the device.
        max_seqlen: longest sequence.
        min_seqlen: shortest sequence.
        seqstart_py: ``seqstart`` as a list.
    """

    seqstart: torch.Tensor
    max_seqlen: int
    min_seqlen: int
    seqstart_py: list[int]

    @classmethod
    def from_seqlens(cls, seqlens: Iterable[int], *, device: _Device = None) -> "_SeqLenInfo":
        """Return the starts of sequences of these lengths."""
        lengths = list(seqlens)
        starts = [0, *itertools.accumulate(lengths)]
        tensor = torch.tensor(starts, dtype=torch.int32, device=_default_device(device))
        return cls(tensor, max(lengths, default=-1), min(lengths, default=-1), starts)

    def to(self, device: _Device) -> "_SeqLenInfo":
        """Return the starts on a device."""
        return replace(self, seqstart=self.seqstart.to(device))

    def intervals(self) -> Iterator[tuple[int, int]]:
        """Start and end of each sequence."""
        return itertools.pairwise(self.seqstart_py)

    def split(self, x: torch.Tensor, batch_sizes: Sequence[int] | None = None) -> list[torch.Tensor]:
        """Split [1, tokens, ...] into tensors [batch size, length, ...].

        Raises:
            ValueError: ``x`` has another number of tokens.
        """
        if x.shape[0] != 1 or x.shape[1] != self.seqstart_py[-1]:
            raise ValueError(f"expected a tensor (1, {self.seqstart_py[-1]}, ...), got {tuple(x.shape)}")
        sizes = batch_sizes or [1] * (len(self.seqstart_py) - 1)
        ends = [self.seqstart_py[index] for index in (0, *itertools.accumulate(sizes))]
        parts = x.split([b - a for a, b in itertools.pairwise(ends)], dim=1)
        return [part.reshape(size, -1, *part.shape[2:]) for size, part in zip(sizes, parts, strict=True)]


@dataclass
class _PaddedSeqLenInfo(_SeqLenInfo):
    """Starts and lengths of sequences in blocks of one size.

    Attributes:
        seqlen: int32 [sequences], lengths.
        seqlen_py: ``seqlen`` as a list.
        padding: size of a block.
    """

    seqlen: torch.Tensor
    seqlen_py: Sequence[int]
    padding: int

    @classmethod
    def from_seqlens_padded(
        cls, seqlens: Sequence[int], padding: int, *, device: _Device = None
    ) -> "_PaddedSeqLenInfo":
        """Return blocks of ``padding`` tokens with sequences of these lengths.

        Raises:
            ValueError: a sequence is longer than a block.
        """
        if max(seqlens) > padding:
            raise ValueError(f"a sequence of {max(seqlens)} tokens does not fit into blocks of {padding}")
        starts = _SeqLenInfo.from_seqlens([padding] * len(seqlens), device=device)
        lengths = torch.tensor(list(seqlens), dtype=torch.int32, device=starts.seqstart.device)
        return cls(
            starts.seqstart, max(seqlens), min(seqlens), starts.seqstart_py, lengths, list(seqlens), padding
        )

    def to(self, device: _Device) -> "_PaddedSeqLenInfo":
        """Return the starts and lengths on a device."""
        return replace(self, seqstart=self.seqstart.to(device), seqlen=self.seqlen.to(device))

    def intervals(self) -> Iterator[tuple[int, int]]:
        """Start and end of each sequence, without its padding."""
        for (start, _), length in zip(super().intervals(), self.seqlen_py, strict=True):
            yield start, start + length


class _Blocks(AttentionBias):
    """Base of biases in which the queries of a sequence see keys of the same sequence only."""

    q_seqinfo: _SeqLenInfo
    k_seqinfo: _SeqLenInfo

    def to(self, device: _Device) -> Any:
        """Return the bias with its tensors on a device."""
        infos = {"q_seqinfo": self.q_seqinfo.to(device), "k_seqinfo": self.k_seqinfo.to(device)}
        return replace(self, **infos)  # type: ignore[type-var]

    def _create_block_mask(
        self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, device: _Device = "cpu"
    ) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device=device)

    def materialize(
        self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, device: _Device = "cpu"
    ) -> torch.Tensor:
        """The bias as a tensor of a shape [..., queries, keys]."""
        found = torch.full(tuple(shape[-2:]), -torch.inf, dtype=dtype, device=device)
        for (a, b), (c, d) in zip(self.q_seqinfo.intervals(), self.k_seqinfo.intervals(), strict=True):
            found[a:b, c:d] = self._create_block_mask((b - a, d - c), dtype, device)
        return found.expand(shape)


@dataclass
class BlockDiagonalMask(_Blocks):
    """The queries of a packed sequence see the keys of the same sequence only."""

    q_seqinfo: _SeqLenInfo
    k_seqinfo: _SeqLenInfo
    _batch_sizes: Sequence[int] | None = None

    @classmethod
    def from_seqlens(
        cls: type[_Self],
        q_seqlen: Sequence[int],
        kv_seqlen: Sequence[int] | None = None,
        *,
        device: _Device = None,
    ) -> _Self:
        """Return the bias of sequences of these lengths.

        Args:
            q_seqlen: numbers of queries.
            kv_seqlen: numbers of keys; None is ``q_seqlen``.
            device: of the tensors; None is the accelerator if there is one.

        Raises:
            ValueError: the numbers of sequences differ.
        """
        if kv_seqlen is not None and len(q_seqlen) != len(kv_seqlen):
            raise ValueError(
                f"{cls.__name__}: {len(q_seqlen)} sequences of queries, {len(kv_seqlen)} of keys"
            )
        queries = _SeqLenInfo.from_seqlens(q_seqlen, device=device)
        if kv_seqlen is None or list(kv_seqlen) == list(q_seqlen):
            return cls(queries, queries)
        return cls(queries, _SeqLenInfo.from_seqlens(kv_seqlen, device=device))

    @classmethod
    def from_tensor_list(cls: type[_Self], tensors: Sequence[torch.Tensor]) -> tuple[_Self, torch.Tensor]:
        """Return the bias of tensors [batch, length, ...], and the tensors packed as [1, tokens, ...]."""
        bias = cls.from_seqlens(_lengths(tensors))
        bias._batch_sizes = [each.shape[0] for each in tensors]
        return bias, _packed(tensors)

    @classmethod
    def from_tensor_lists_qkv(
        cls: type[_Self],
        tensors_q: Sequence[torch.Tensor],
        tensors_k: Sequence[torch.Tensor],
        tensors_v: Sequence[torch.Tensor] | None = None,
    ) -> tuple[_Self, torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Return the bias of lists of queries, keys and values, and each list packed."""
        bias = cls.from_seqlens(_lengths(tensors_q), _lengths(tensors_k))
        bias._batch_sizes = [each.shape[0] for each in tensors_q]
        values = None if tensors_v is None else _packed(tensors_v)
        return bias, _packed(tensors_q), _packed(tensors_k), values

    def split_queries(self, tensor: torch.Tensor) -> Sequence[torch.Tensor]:
        """Split packed queries into the tensors of ``from_tensor_list``."""
        return self.q_seqinfo.split(tensor, self._batch_sizes)

    def split_kv(self, tensor: torch.Tensor) -> Sequence[torch.Tensor]:
        """Split packed keys or values."""
        return self.k_seqinfo.split(tensor, self._batch_sizes)

    def split(self, tensor: torch.Tensor) -> Sequence[torch.Tensor]:
        """Split a packed tensor of the same lengths for queries and keys."""
        return self.q_seqinfo.split(tensor, self._batch_sizes)

    def make_causal(self) -> "BlockDiagonalCausalMask":
        """Return the bias with each sequence causal."""
        return BlockDiagonalCausalMask(self.q_seqinfo, self.k_seqinfo, self._batch_sizes)

    def make_causal_from_bottomright(self) -> "BlockDiagonalCausalFromBottomRightMask":
        """Return the bias with each sequence causal, the last query aligned with the last key."""
        return BlockDiagonalCausalFromBottomRightMask(self.q_seqinfo, self.k_seqinfo, self._batch_sizes)

    def make_local_attention(self, window_size: int) -> "BlockDiagonalCausalLocalAttentionMask":
        """Return the bias with each sequence causal and limited to a window of keys."""
        given = (self.q_seqinfo, self.k_seqinfo, self._batch_sizes)
        return BlockDiagonalCausalLocalAttentionMask(*given, window_size)

    def make_local_attention_from_bottomright(
        self, window_size: int
    ) -> "BlockDiagonalCausalLocalAttentionFromBottomRightMask":
        """Like :meth:`make_local_attention`, the last query aligned with the last key."""
        given = (self.q_seqinfo, self.k_seqinfo, self._batch_sizes)
        return BlockDiagonalCausalLocalAttentionFromBottomRightMask(*given, window_size)


@dataclass
class BlockDiagonalCausalMask(BlockDiagonalMask):
    """Block-diagonal and causal; the first query of a sequence is aligned with its first key."""

    def _create_block_mask(
        self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, device: _Device = "cpu"
    ) -> torch.Tensor:
        return _window(shape, dtype, device, right=0)


@dataclass
class BlockDiagonalCausalFromBottomRightMask(BlockDiagonalMask):
    """Block-diagonal and causal; the last query of a sequence is aligned with its last key."""

    def __post_init__(self) -> None:
        pairs = zip(self.q_seqinfo.intervals(), self.k_seqinfo.intervals(), strict=True)
        for i, ((a, b), (c, d)) in enumerate(pairs):
            if d - c < b - a:
                raise ValueError(
                    f"BlockDiagonalCausalFromBottomRightMask: sequence {i} has {b - a} queries and {d - c} keys; "
                    "it needs at least as many keys as queries"
                )

    def _create_block_mask(
        self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, device: _Device = "cpu"
    ) -> torch.Tensor:
        return _window(shape, dtype, device, right=0, shift=shape[-1] - shape[-2])


@dataclass
class BlockDiagonalCausalLocalAttentionMask(BlockDiagonalCausalMask):
    """Block-diagonal, causal and limited to a window of keys."""

    _window_size: int = 0

    def __post_init__(self) -> None:
        _check_positive(self, self._window_size)

    def _create_block_mask(
        self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, device: _Device = "cpu"
    ) -> torch.Tensor:
        return _window(shape, dtype, device, self._window_size - 1, 0)


@dataclass
class BlockDiagonalCausalLocalAttentionFromBottomRightMask(BlockDiagonalCausalFromBottomRightMask):
    """Like :class:`BlockDiagonalCausalLocalAttentionMask`, the last query aligned with the last key."""

    _window_size: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_positive(self, self._window_size)

    def _create_block_mask(
        self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, device: _Device = "cpu"
    ) -> torch.Tensor:
        return _window(shape, dtype, device, self._window_size - 1, 0, shape[-1] - shape[-2])


@dataclass
class BlockDiagonalPaddedKeysMask(_Blocks):
    """Block-diagonal over keys in blocks of one size; the keys after a sequence's length are hidden."""

    q_seqinfo: _SeqLenInfo
    k_seqinfo: _PaddedSeqLenInfo

    @classmethod
    def from_seqlens(
        cls,
        q_seqlen: Sequence[int],
        kv_padding: int,
        kv_seqlen: Sequence[int],
        causal_diagonal: Any = None,
        *,
        device: _Device = None,
    ) -> "BlockDiagonalPaddedKeysMask":
        """Return the bias of sequences of these lengths; ``causal_diagonal`` is ignored."""
        queries = _SeqLenInfo.from_seqlens(q_seqlen, device=device)
        return cls(queries, _PaddedSeqLenInfo.from_seqlens_padded(kv_seqlen, kv_padding, device=device))


@dataclass
class BlockDiagonalCausalWithOffsetPaddedKeysMask(BlockDiagonalPaddedKeysMask):
    """Padded keys and causal; the last query of a sequence is aligned with its last key."""

    causal_diagonal: Any = None

    def _create_block_mask(
        self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, device: _Device = "cpu"
    ) -> torch.Tensor:
        return _window(shape, dtype, device, right=0, shift=shape[-1] - shape[-2])


def _check_positive(bias: AttentionBias, window_size: int) -> None:
    if window_size <= 0:
        raise ValueError(f"{type(bias).__name__}: window_size is {window_size}; it must be positive")


def _default_device(device: _Device) -> torch.device:
    if device is None:
        return torch.accelerator.current_accelerator() or torch.device("cpu")
    return torch.device(device)


def _lengths(tensors: Sequence[torch.Tensor]) -> list[int]:
    return [each.shape[1] for each in tensors for _ in range(each.shape[0])]


def _packed(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([each.reshape(1, -1, *each.shape[2:]) for each in tensors], dim=1)
