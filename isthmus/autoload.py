"""What happens on ``import torch``: decide whether the chip is registered, and do it.

This runs inside every ``import torch``, so it starts no thread, allocates nothing, initialises no driver,
imports nothing heavy and never raises.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

from isthmus import drivers, options

_TOOLS = ("ISTHMUS_DEBUG", "ISTHMUS_DEBUG_CALLS", "ISTHMUS_STREAM_CHECK")


class Status(NamedTuple):
    """Outcome of the autoload.

    Attributes:
        registered: whether ``torch.device("chip")`` exists.
        reason: one line, why it does or does not.
        driver: name of the driver, empty if none.
        path: its library, empty if none.
        searched: where drivers were looked for, in order, each with what was found.
        seconds: what the autoload added to ``import torch``.
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
_status = Status(False, "it is not loaded: TORCH_DEVICE_BACKEND_AUTOLOAD=0, or torch is not imported")


def status() -> Status:
    """Outcome of the autoload in this process."""
    return _status


def load() -> None:
    """Register the chip, or put a stub at ``torch.chip``. The second call does nothing."""
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
    except Exception as error:  # whatever it is, `import torch` goes on
        outcome = Status(False, f"{type(error).__name__}: {_one_line(error)}")
        if not asked:  # a wrong option, or a defect: without a line, "chip" would just be unknown
            print(f"isthmus: the chip is not there: {outcome.reason}", file=sys.stderr)
    if not outcome.registered:
        _install_stub(outcome.reason)
        if asked and asked not in drivers.DISABLED:
            print(f"isthmus: ISTHMUS_DRIVER={asked} is not used: {outcome.reason}", file=sys.stderr)
    _status = outcome._replace(seconds=time.perf_counter() - start)
    if outcome.registered and any(name in os.environ for name in _TOOLS):
        from isthmus.debug import environment

        environment.start()
    if outcome.registered and os.environ.get("ACCELERATE_TORCH_DEVICE", "").startswith("chip"):
        from isthmus.shim import hugging_face

        hugging_face.install()
    if outcome.registered and os.environ.get("DS_ACCELERATOR") == "chip":
        import isthmus.deepspeed  # noqa: F401 - the import adopts it


def _register(asked: str) -> Status:
    if asked in drivers.DISABLED:
        raise Refused(f"ISTHMUS_DRIVER={asked} switches it off")
    _check_torch_version()
    _check_privateuse1_is_free()
    if not asked:
        _check_no_other_accelerator()
    options.switch("leak_report")  # a wrong value is refused before anything is registered
    found = drivers.find(asked)
    candidate, searched = _open_first(found)
    _install_device_module()
    reason = "ISTHMUS_DRIVER asks for it" if asked else "no other accelerator is here"
    return Status(True, reason, candidate.name, candidate.path, searched)


def _check_torch_version() -> None:
    import torch

    try:
        from isthmus._build import TORCH_VERSION
    except ModuleNotFoundError:
        raise Refused("the C++ core is not built; do `pip install --no-build-isolation .`") from None
    if torch.__version__ != TORCH_VERSION:
        raise Refused(
            f"the C++ core was built for torch {TORCH_VERSION}, this is torch {torch.__version__}; "
            "do `pip install --no-build-isolation --force-reinstall --no-deps isthmus`"
        )


def _check_privateuse1_is_free() -> None:
    import torch

    name = torch._C._get_privateuse1_backend_name()
    if name != "privateuseone":
        raise Refused(f"another plugin has registered PyTorch's PrivateUse1 device as {name!r}")


def _check_no_other_accelerator() -> None:
    name = _other_accelerator()
    if name:
        raise Refused(f"{name} serves torch.accelerator here; ISTHMUS_DRIVER=host would take its place")


def _other_accelerator() -> str:
    """Name of an accelerator that PyTorch has without us, or "". Cheap: initialises none of them."""
    import torch

    accelerator = torch.accelerator.current_accelerator()  # of this build of PyTorch; None for CPU wheels
    if accelerator is not None and _is_present(accelerator.type):
        return accelerator.type
    others = [plugin.name for plugin in drivers.installed("torch.backends") if plugin.name != "isthmus"]
    return f"plugin {others[0]}" if others else ""


def _is_present(device_type: str) -> bool:
    import torch

    if device_type == "cuda":
        # Without a device file there is no device, and the CUDA library need not be asked.
        files = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
        return any(Path(file).exists() for file in files) and torch.cuda.device_count() > 0
    return torch.accelerator.is_available()


def _open_first(found: drivers.Search) -> tuple[drivers.Candidate, tuple[str, ...]]:
    """Open the first driver that can be opened.

    Raises:
        Refused: with the reason of the first candidate.
    """
    from isthmus import _C
    from isthmus.chip import registration

    searched, problems = list(found.searched), []
    for candidate in found.candidates:
        try:
            _C.open_driver(candidate.path, candidate.name, candidate.delegate)
        except RuntimeError as error:
            problems.append(_one_line(error))
            searched.append(f"{candidate.path}: {problems[-1]}")
            continue
        registration.register(candidate)
        searched.append(f"{candidate.path}: opened")
        return candidate, tuple(searched)
    raise Refused(problems[0] if problems else found.problem, tuple(searched))


def _install_device_module() -> None:
    """Name the device and hand PyTorch its module. After this, ``torch.accelerator`` is the chip."""
    import torch
    from torch.utils import backend_registration

    backend_registration.rename_privateuse1_backend("chip")
    from isthmus import chip, graph
    from isthmus.chip import distributed

    torch._register_device_module("chip", chip)
    backend_registration.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    chip._install()
    graph.install()
    distributed.register()


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


class Stub(ModuleType):
    """``torch.chip`` where the chip is not registered: answers what has an answer, refuses the rest."""

    def __init__(self, reason: str) -> None:
        super().__init__("torch.chip", f"The chip is not registered: {reason}")
        self._reason = reason

    def device_count(self) -> int:
        """0: there is no device."""
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
            "`isthmus doctor` says more."
        )


def _install_stub(reason: str) -> None:
    import torch

    module: Any = torch
    if not hasattr(module, "chip"):
        module.chip = sys.modules["torch.chip"] = Stub(reason)
