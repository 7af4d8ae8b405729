"""Register the chip on ``import torch`` if it is to be used.

This runs inside every ``import torch``, so it starts no thread, allocates nothing, initialises no driver,
imports nothing heavy, and raises nothing but InvalidOption.
"""

import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

from isthmus import binaries, drivers, options
from isthmus.options import InvalidOption
from isthmus_common.options import start as start_tools
from isthmus_common.text import first_line


class Status(NamedTuple):
    """Outcome of the autoload.

    Attributes:
        registered: whether ``torch.device("chip")`` exists.
        reason: why, in one line.
        driver: name of the driver, "" if none.
        path: its library, "" if none.
        searched: the places searched for drivers, in order, each with the result.
        seconds: time added to ``import torch``.
    """

    registered: bool
    reason: str
    driver: str = ""
    path: str = ""
    searched: tuple[str, ...] = ()
    seconds: float = 0.0


class Refused(Exception):
    """The chip is not registered; the message is the reason."""

    def __init__(self, reason: str, searched: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.searched = searched


# PyTorch registers a backend once per process, so this is per process too.
_status = Status(
    False, "autoload did not run: TORCH_DEVICE_BACKEND_AUTOLOAD=0 is set, or torch is not imported"
)


def status() -> Status:
    """Return the outcome of the autoload in this process."""
    return _status


def load() -> None:
    """Register the chip, or install a stub as ``torch.chip``. Later calls do nothing.

    Raises:
        InvalidOption: an option has an invalid value.
    """
    global _status
    import torch

    if _status.registered or isinstance(getattr(torch, "chip", None), Stub):
        return
    start = time.perf_counter()
    asked = options.text("driver")
    try:
        outcome = _register(asked)
    except Refused as refusal:
        outcome = Status(False, str(refusal), searched=refusal.searched)
    except Exception as error:  # `import torch` continues after any error
        outcome = Status(False, f"{type(error).__name__}: {first_line(error)}")
        if not asked:  # a defect: report it, else "chip" is only an unknown device
            print(f"isthmus: the chip is not available: {outcome.reason}", file=sys.stderr)
    if not outcome.registered:
        _install_stub(outcome.reason)
        if asked and asked not in drivers.DISABLED:
            print(f"isthmus: ISTHMUS_DRIVER={asked} is not used: {outcome.reason}", file=sys.stderr)
    _status = outcome._replace(seconds=time.perf_counter() - start)
    if outcome.registered:
        start_tools("import torch", options.TABLE.variables())
    if outcome.registered and os.environ.get("ACCELERATE_TORCH_DEVICE", "").startswith("chip"):
        from isthmus.shim import hugging_face

        hugging_face.install()
    if outcome.registered and os.environ.get("DS_ACCELERATOR") == "chip":
        import isthmus.deepspeed  # noqa: F401 - the import adopts it


def _register(asked: str) -> Status:
    if asked in drivers.DISABLED:
        raise Refused(f"disabled by ISTHMUS_DRIVER={asked}")
    _check_torch_version()
    _check_privateuse1_is_free()
    if not asked:
        _check_no_other_accelerator()
    _check_options()
    found = drivers.find(asked)
    candidate, searched = _open_first(found)
    _install_device_module()
    reason = "selected by ISTHMUS_DRIVER" if asked else "no other accelerator available"
    return Status(True, reason, candidate.name, candidate.path, searched)


def _check_options() -> None:
    """Check all options here rather than in the operation that reads one first."""
    try:
        options.check()
    except ValueError as error:
        raise InvalidOption(f"isthmus: {error}") from None


def _check_torch_version() -> None:
    import torch

    try:
        binaries.find(torch.__version__)
    except binaries.NotBuilt as error:
        print(f"isthmus: {error.problem}: the chip is off; {error.remedy}", file=sys.stderr)
        raise Refused(str(error)) from None


def _check_privateuse1_is_free() -> None:
    import torch

    name = torch._C._get_privateuse1_backend_name()
    if name != "privateuseone":
        raise Refused(f"another plugin has registered PyTorch's PrivateUse1 device as {name!r}")


def _check_no_other_accelerator() -> None:
    name = _other_accelerator()
    if name:
        raise Refused(f"torch.accelerator is {name}; set ISTHMUS_DRIVER=host to replace it")


def _other_accelerator() -> str:
    """Return the accelerator that PyTorch has without Isthmus, or "". Initialises no device."""
    import torch

    # Accelerator of this build of PyTorch; None for CPU wheels.
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is not None and _is_present(accelerator.type):
        return accelerator.type
    others = [
        plugin.name for plugin in drivers.installed_entry_points("torch.backends") if plugin.name != "isthmus"
    ]
    return f"plugin {others[0]}" if others else ""


def _is_present(device_type: str) -> bool:
    import torch

    if device_type == "cuda":
        # Without a device file there is no device: skip loading the CUDA library.
        files = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
        return any(Path(file).exists() for file in files) and torch.cuda.device_count() > 0
    return torch.accelerator.is_available()


def _open_first(found: drivers.Search) -> tuple[drivers.Candidate, tuple[str, ...]]:
    """Open the first usable driver.

    Raises:
        Refused: no driver is usable; the message is the first candidate's reason.
    """
    from isthmus import _C
    from isthmus.chip import registration

    searched, problems = list(found.searched), []
    for candidate in found.candidates:
        try:
            _C.open_driver(candidate.path, candidate.name, candidate.delegate)
        except RuntimeError as error:
            problems.append(first_line(error))
            searched.append(f"{candidate.path}: {problems[-1]}")
            continue
        registration.register(candidate)
        searched.append(f"{candidate.path}: opened")
        return candidate, tuple(searched)
    raise Refused(problems[0] if problems else found.problem, tuple(searched))


def _install_device_module() -> None:
    """Name the device and register its module. After this, ``torch.accelerator`` is the chip."""
    import torch
    from torch.utils import backend_registration

    backend_registration.rename_privateuse1_backend("chip")
    from isthmus import _C, chip
    from isthmus.chip import compile, distributed, installation
    from isthmus_common.patches import attempt

    _C.register_graphs()
    torch._register_device_module("chip", chip)
    backend_registration.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    installation.install()
    attempt(compile.install, "torch.compile on the chip")
    distributed.install()


class Stub(ModuleType):
    """``torch.chip`` when the chip is not registered: reports 0 devices; other names raise."""

    def __init__(self, reason: str) -> None:
        super().__init__("torch.chip", f"The chip is not registered: {reason}")
        self._reason = reason

    def device_count(self) -> int:
        """Return 0."""
        return 0

    def is_available(self) -> bool:
        """False."""
        return False

    def is_initialized(self) -> bool:
        """False."""
        return False

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"torch.chip.{name}: the chip is not registered: {self.__dict__.get('_reason', '')}. "
            "Run `isthmus doctor` for details."
        )


def _install_stub(reason: str) -> None:
    import torch

    module: Any = torch
    if not hasattr(module, "chip"):
        module.chip = sys.modules["torch.chip"] = Stub(reason)
