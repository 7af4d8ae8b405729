"""AOTInductor packages for the chip: what their metadata says, and how they are loaded.

``torch._inductor.aoti_compile_and_package`` makes them (:mod:`isthmus.graph.aot_compile`); what
``torch._inductor.aoti_load_package`` returns takes and returns chip tensors, and its weights are in the chip's memory.
"""

import functools
import io
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from isthmus import _C
from isthmus._support.patches import Scope
from isthmus.chip.device import device_count, is_host_addressable

METADATA = "ISTHMUS_PACKAGE"  # key in the package's metadata; the value is a Signature as JSON
_LOADER = "torch.export.pt2_archive._package"


class Input(NamedTuple):
    """A tensor that a package takes.

    Attributes:
        name: of the program's argument.
        device: its type, "chip" or "cpu".
        dtype: as ``str(torch.dtype)`` without the prefix.
        shape: of the example.
        symbols: per dimension the name of its size if that is dynamic, else "".
    """

    name: str
    device: str
    dtype: str
    shape: list[int]
    symbols: list[str]


class Signature(NamedTuple):
    """What the code of a package, which was compiled for the CPU, does not say.

    Attributes:
        inputs: the tensors that it takes, in order.
        same: (output, input) of the outputs that are an input.
        on_cpu: positions of the outputs that belong on the CPU.
    """

    inputs: list[Input]
    same: list[tuple[int, int]]
    on_cpu: list[int]


def signature(metadata: dict[str, str]) -> Signature | None:
    """Return the signature in a package's metadata; None if it was not compiled for the chip."""
    if METADATA not in metadata:
        return None
    inputs, same, on_cpu = json.loads(metadata[METADATA])
    return Signature([Input(*each) for each in inputs], [(i, j) for i, j in same], on_cpu)


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


def _load(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load(
        file: str, model_name: str, run_single_threaded: bool, num_runners: int, device_idx: int
    ) -> Any:
        read = torch._C._aoti.AOTIModelPackageLoader.load_metadata_from_package
        found = signature(read(file, model_name))
        if found is None:
            return original(file, model_name, run_single_threaded, num_runners, device_idx)
        device = _device(file, device_idx)
        model = original(file, model_name, run_single_threaded, num_runners, -1)
        model.loader = ChipLoader(model.loader, found, device)
        model.loader.adopt(_weights(file, model_name, torch.device("chip", device)))
        return model

    return load


def _device(file: str, index: int) -> int:
    """Index of the chip to load to. Not a RuntimeError: PyTorch would try again as an older format."""
    if not is_host_addressable():
        raise ValueError(f"{file} was compiled for a chip whose memory the CPU addresses; this driver's is not")
    index = _C.current_device() if index < 0 else index
    if index >= device_count():
        raise ValueError(f"{file}: no device chip:{index}; {device_count()} available")
    return index


def _weights(file: str, model_name: str, device: torch.device) -> dict[str, Tensor]:
    """The weights that the archive stores beside the code, by their names in the code, on the device."""
    from torch.export.pt2_archive._package import PT2ArchiveReader
    from torch.export.pt2_archive.constants import AOTINDUCTOR_DIR, WEIGHTS_DIR

    config = f"{AOTINDUCTOR_DIR}{model_name}/weights_config.json"
    with PT2ArchiveReader(file) as archive:
        if config not in archive.get_file_names():
            return {}
        places = json.loads(archive.read_string(config))
        files = {place[0] for place in places.values()}
        read = {each: io.BytesIO(archive.read_bytes(WEIGHTS_DIR + each)) for each in files}
    stored = {each: torch.load(data, map_location=device, weights_only=True) for each, data in read.items()}
    return {name: stored[each].as_strided(*where) for name, (each, *where) in places.items()}


class ChipLoader:
    """PyTorch's loader of one package (``AOTIModelPackageLoader``), for chip tensors.

    Args:
        loader: of the code, which runs on the CPU.
        package: its signature.
        device: index of the chip.
    """

    def __init__(self, loader: Any, package: Signature, device: int) -> None:
        self._loader = loader
        self.signature = package
        self.device = device
        self.weights: dict[str, Tensor] = {}  # the code has pointers to them

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def boxed_run(self, inputs: list[Tensor]) -> list[Tensor]:
        """Run the code; empties the list.

        Args:
            inputs: as the signature says.

        Raises:
            ValueError: another number of inputs, or one on another type of device.
        """
        wanted = self.signature.inputs
        if len(inputs) != len(wanted):
            raise ValueError(f"the package takes {len(wanted)} tensors, not {len(inputs)}")
        for tensor, each in zip(inputs, wanted, strict=True):
            if tensor.device.type != each.device:
                raise ValueError(f"input {each.name} is on {tensor.device}; the package takes it on {each.device}")
        results = _C.call_on_host(self._loader.boxed_run, inputs, self.device, self.signature.same)
        for position in self.signature.on_cpu:
            results[position] = results[position].cpu()
        return results

    def run(self, inputs: list[Tensor]) -> list[Tensor]:
        """Run the code and leave the list as it is."""
        return self.boxed_run(list(inputs))

    def adopt(self, weights: dict[str, Tensor]) -> None:
        """Use chip tensors as the weights, without a copy."""
        if weights:
            self.weights = weights
            aliases = {name: _C.as_host(tensor) for name, tensor in weights.items()}
            self._loader.load_constants(aliases, False, True, True)

    def load_constants(
        self,
        constants_map: dict[str, Tensor],
        use_inactive: bool,
        check_full_update: bool,
        user_managed: bool = False,
        allow_h2d_copy: bool = False,
    ) -> None:
        """Replace weights, as PyTorch's loader does."""
        place = torch.device("chip", self.device)
        weights = {name: t.to(place, copy=not user_managed) for name, t in constants_map.items()}
        self.weights = {**self.weights, **weights}
        aliases = {name: _C.as_host(tensor) for name, tensor in weights.items()}
        self._loader.load_constants(aliases, use_inactive, check_full_update, True)
