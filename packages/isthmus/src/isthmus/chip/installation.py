"""Install what the device module changes outside itself, once, when the chip is registered.

The device module does not do it: it is still being imported then, where a program imports it before PyTorch.
"""

import atexit
import sys
from types import ModuleType

from isthmus._C import end_drops
from isthmus.chip import amp, comm, graphs, memory, nvtx, profiler, random, sharing, streams
from isthmus.chip.memory.leaks import report_at_exit
from isthmus.chip.patches import (
    cross_entropy,
    data_parallel,
    dlpack,
    flex_attention,
    graph_capture,
    higher_order,
    lazy_modules,
    opcheck,
    profiler_stacks,
)
from isthmus_common.patches import attempt


def install() -> None:
    """Make submodules importable as ``torch.chip.*``, and patch PyTorch for the device."""
    modules: tuple[ModuleType, ...] = (amp, comm, graphs, memory, nvtx, profiler, random, streams)
    for module in modules:
        sys.modules[f"torch.chip.{module.__name__.rpartition('.')[2]}"] = module
    for install, loss in (
        (sharing.install, "sending the chip's tensors to other processes"),
        (cross_entropy.install, "float32 sums of linear_cross_entropy's 16-bit inputs"),
        (data_parallel.install, "torch.nn.DataParallel on the chip"),
        (dlpack.install, "DLPack of the chip's tensors"),
        (flex_attention.install, "flex_attention on the chip"),
        (graph_capture.install, "optimizers in captured graphs"),
        (higher_order.install, "higher-order operators on the chip"),
        (lazy_modules.install, "moving lazy modules to the chip"),
        (opcheck.install, "torch.library.opcheck on the chip"),
        (profiler_stacks.install, "stacks of the chip's events in the profiler"),
    ):
        attempt(install, loss)
    atexit.register(end_drops)  # the first one registered runs last
    report_at_exit()
