"""AOTInductor packages for the chip: what their metadata says, and how they are loaded.

``torch._inductor.aoti_compile_and_package`` makes them (:mod:`isthmus.chip.compile.aot_compile`). What
``torch._inductor.aoti_load_package`` returns takes and returns chip tensors; its weights are in the chip's memory.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C._export import pt2_archive_constants as constants
from torch.utils import _pytree as pytree

from isthmus import _C
from isthmus.chip.device import device_count, is_host_addressable
from isthmus_common.patches import Scope
from isthmus_common.text import count

CHIP = "chip"
METADATA = "isthmus_package"  # key in the package's metadata; the value is a Signature as JSON
_CPU = torch.device("cpu")
_LOADER = "torch.export.pt2_archive._package"


class Input(NamedTuple):
    """A tensor that a package takes.

    Attributes:
        name: of the program's argument.
        device: its type, "chip" or "cpu".
        dtype: as ``str(torch.dtype)`` without the prefix.
        shape: of the example.
        symbols: per dimension the name of its size if that is dynamic, else "".
        largest: per dimension the largest size; empty if none is known.
    """

    name: str
    device: str
    dtype: str
    shape: list[int]
    symbols: list[str]
    largest: Sequence[int] = ()

    def kind(self) -> str:
        """Return the dtype and shape, such as ``float32 [s0, 4]``, and what limits it."""
        sizes = [symbol or str(size) for size, symbol in zip(self.shape, self.symbols, strict=True)]
        for i, most in enumerate(self.largest):
            sizes[i] += f" <= {most}" if self.symbols[i] and most < sys.maxsize else ""
        return f"{self.dtype} [{', '.join(sizes)}]"

    def accepts(self, tensor: Tensor) -> bool:
        """Return whether a tensor has the dtype, the fixed sizes, and dynamic ones that are not too large."""
        most = self.largest or [sys.maxsize] * len(self.shape)
        sizes = zip(tensor.shape, self.shape, self.symbols, most, strict=False)
        return (
            str(tensor.dtype) == f"torch.{self.dtype}"
            and tensor.dim() == len(self.shape)
            and all(size <= largest if symbol else size == fixed for size, fixed, symbol, largest in sizes)
        )


def kind_of(tensor: Tensor) -> str:
    """Return the dtype and shape of a tensor, such as ``float32 [2, 4]``."""
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


class Signature(NamedTuple):
    """The facts of a package that its code, which was compiled for the CPU, does not have.

    Attributes:
        inputs: the tensors that it takes, in order.
        outputs: names.
        same: (output, input) of the outputs that are an input.
        on_cpu: positions of the outputs that belong on the CPU.
    """

    inputs: list[Input]
    outputs: list[str]
    same: list[tuple[int, int]]
    on_cpu: list[int]


def signature(about: dict[str, str]) -> Signature | None:
    """Return the signature in a package's metadata; None if it was not compiled for the chip."""
    if METADATA not in about:
        return None
    inputs, outputs, same, on_cpu = json.loads(about[METADATA])
    return Signature([Input(*each) for each in inputs], outputs, [(i, j) for i, j in same], on_cpu)


def describe(name: str, value: Tensor) -> Input:
    """Return the description of an input from its example or fake tensor."""
    sizes = [(size, "") if isinstance(size, int) else (size.node.hint, str(size)) for size in value.shape]
    dtype = str(value.dtype).removeprefix("torch.")
    shape, symbols = [hint for hint, _ in sizes], [symbol for _, symbol in sizes]
    return Input(
        name, value.device.type, dtype, shape, symbols, [_largest_size(size) for size in value.shape]
    )


def _largest_size(size: int | torch.SymInt) -> int:
    if isinstance(size, int):
        return size
    node: Any = size.node  # its environment may be None by its type, and is not here
    upper = node.shape_env.bound_sympy(node.expr).upper
    return int(upper) if upper.is_Integer else sys.maxsize


def output_names(spec: pytree.TreeSpec) -> list[str]:
    """Return a name for each leaf of what a program returns.

    Keys and fields are joined by dots, as ``hidden.0``; where all are positions, leaf i is ``output_i``.
    """
    leaves = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    paths = [[_part_name(key) for key in path] for path, _ in pytree.tree_flatten_with_path(leaves)[0]]
    return [
        f"output_{i}" if all(part.isdigit() for part in path) else ".".join(path)
        for i, path in enumerate(paths)
    ]


def _part_name(key: Any) -> str:
    return str(*dataclasses.astuple(key))


def install(scope: Scope) -> None:
    """Make PyTorch's functions that load packages load the chip's."""
    scope.when_imported(
        _LOADER,
        lambda: scope.replace(
            f"{_LOADER}._load_aoti",
            _load,
            "a package compiled for the chip takes chip tensors",
            expects=("file", "model_name", "run_single_threaded", "num_runners", "device_idx"),
        ),
        "packages for the chip",
    )


def open_package(file: str, model_name: str, device: torch.device) -> PackageLoader:
    """Load one model of a package for the chip, without importing Inductor.

    Args:
        file: the package.
        model_name: of the model in it.
        device: a chip, or the CPU: then the model takes and returns CPU tensors.

    Raises:
        ValueError: the package is not for the chip, or not for this one.
    """
    found = signature(metadata(file, model_name))
    if found is None:
        raise ValueError(f"{file} was not compiled for the chip")
    if device != _CPU:
        device = _device(file, device.index)
    loader = torch._C._aoti.AOTIModelPackageLoader(file, model_name, False, 1, -1)
    return PackageLoader(loader, found, device, file, model_name)


def metadata(file: str, model_name: str = "model") -> dict[str, str]:
    """Return what AOTInductor wrote about one model of a package, without loading its code."""
    loader = torch._C._aoti.AOTIModelPackageLoader
    return dict(loader.load_metadata_from_package(file, model_name))  # type: ignore[attr-defined]


def _load(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load(file: str, model_name: str, run_single_threaded: bool, num_runners: int, device_idx: int) -> Any:
        found = signature(metadata(file, model_name))
        if found is None:
            return original(file, model_name, run_single_threaded, num_runners, device_idx)
        device = _device(file, device_idx)
        model = original(file, model_name, run_single_threaded, num_runners, device.index)
        model.loader = PackageLoader(model.loader, found, device, file, model_name)
        return model

    return load


def _device(file: str, index: int) -> torch.device:
    """The chip to load to. Errors are not RuntimeErrors, after which PyTorch tries an older format."""
    if not is_host_addressable():
        raise ValueError(
            f"{file} is for a chip whose memory the CPU addresses; the memory of this chip is not"
        )
    index = _C.current_device() if index < 0 else index
    if index >= device_count():
        raise ValueError(f"{file}: no device chip:{index}; {count(device_count(), 'device')} available")
    return torch.device("chip", index)


def _weights(file: str, model_name: str, device: torch.device) -> dict[str, Tensor]:
    """The weights that the archive stores beside the code, by their names in the code, on the device."""
    archive: Any = torch._C.PyTorchFileReader(file)
    config = f"{constants.AOTINDUCTOR_DIR}{model_name}/weights_config.json"
    if config not in archive.get_all_records():
        return {}
    places = json.loads(archive.get_record(config))
    files = {name: archive.get_record(constants.WEIGHTS_DIR + name) for name, *_ in places.values()}
    stored = {
        name: torch.load(io.BytesIO(data), map_location=device, weights_only=True)
        for name, data in files.items()
    }
    return {name: stored[each].as_strided(*where) for name, (each, *where) in places.items()}


class PackageLoader:
    """PyTorch's loader of one package (``AOTIModelPackageLoader``), for the tensors of a device.

    Args:
        loader: of the code, which runs on the CPU.
        package: its signature.
        device: a chip or the CPU, for inputs, outputs and weights.
        file: the package.
        model_name: of the model in it.
    """

    def __init__(
        self, loader: Any, package: Signature, device: torch.device, file: str, model_name: str
    ) -> None:
        self._loader = loader
        self._aliases: list[Tensor] = []  # aliases of the weights; the code never deletes the handles to them
        weakref.finalize(self, _release, self._aliases).atexit = False
        self.signature = package
        self.device = device
        if weights := _weights(file, model_name, device):
            self._use(weights, inactive=False, all_of_them=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def run(self, inputs: list[Tensor]) -> list[Tensor]:
        """Run the code; inputs and errors as of :meth:`boxed_run`."""
        return self.boxed_run(list(inputs))

    def boxed_run(self, inputs: list[Tensor]) -> list[Tensor]:
        """Run the code; empties the list.

        Args:
            inputs: as the signature says.

        Raises:
            ValueError: another number of inputs, or one of another device, dtype or shape.
        """
        wanted = self.signature.inputs
        if len(inputs) != len(wanted):
            raise ValueError(f"the package takes {count(len(wanted), 'tensor')}, not {len(inputs)}")
        for tensor, each in zip(inputs, wanted, strict=True):
            device = self.device if each.device == CHIP else _CPU
            if tensor.device != device:
                raise ValueError(f"input {each.name} is on {tensor.device}; the package takes it on {device}")
            if not each.accepts(tensor):
                raise ValueError(f"input {each.name} is {kind_of(tensor)}; the package takes {each.kind()}")
        if self.device == _CPU:
            return self._run_code(inputs)
        results = _C.call_on_host(self._run_code, inputs, self.device.index, self.signature.same)
        for position in self.signature.on_cpu:
            results[position] = results[position].cpu()
        return results

    def _run_code(self, inputs: list[Tensor]) -> list[Tensor]:
        """Run the code on CPU tensors; a captured graph that holds this method holds the weights too."""
        results: list[Tensor] = self._loader.boxed_run(inputs)
        return results

    def load_constants(
        self,
        constants_map: dict[str, Tensor],
        use_inactive: bool,
        check_full_update: bool,
        user_managed: bool = False,
        allow_h2d_copy: bool = False,
    ) -> None:
        """Replace weights; the arguments are those of PyTorch's loader.

        Raises:
            ValueError: a weight is on another device, without allow_h2d_copy.
        """
        for name, tensor in constants_map.items():
            if tensor.device != self.device and not (allow_h2d_copy and tensor.is_cpu):
                raise ValueError(
                    f"constant {name} is on {tensor.device}; the package has it on {self.device}"
                )
        weights = {name: t.to(self.device, copy=not user_managed) for name, t in constants_map.items()}
        self._use(weights, use_inactive, check_full_update)

    def _use(self, weights: dict[str, Tensor], inactive: bool, all_of_them: bool) -> None:
        aliases = {name: t.detach() if t.is_cpu else _C.as_host(t) for name, t in weights.items()}
        self._aliases += aliases.values()
        self._loader.load_constants(aliases, inactive, all_of_them, True)


def _release(aliases: list[Tensor]) -> None:
    """Free what the tensors hold, which other references to them share."""
    for alias in aliases:
        alias.set_()  # type: ignore[call-overload]
