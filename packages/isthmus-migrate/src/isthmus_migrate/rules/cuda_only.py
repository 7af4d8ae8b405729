"""Calls that apply to CUDA only."""

from isthmus_migrate.rules.functions import FunctionRule


class CudaOnly(FunctionRule):
    """Calls that are kept for CUDA and skipped elsewhere."""

    code = "IM127"
    name = "cuda-only"
    summary = "calls that only CUDA has are guarded by a test for CUDA"
    before = "torch.cuda.ipc_collect()"
    after = 'if DEVICE.type == "cuda":\n    torch.cuda.ipc_collect()'
    words = (
        "ipc_collect",
        "set_sync_debug_mode",
        "utilization",
        "temperature",
        "power_draw",
        "clock_rate",
        "is_current_stream_capturing",
    )
