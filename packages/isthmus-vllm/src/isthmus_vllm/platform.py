"""vLLM's platform interface, answered by the accelerator."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import Backend
from vllm.platforms.interface import DeviceCapability, Platform, PlatformEnum
from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

from isthmus_common.after_import import when_imported
from isthmus_vllm import versions

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.utils.argparse_utils import FlexibleArgumentParser

# Fastest on a chip whose kernels start as quickly as a function call; 1 chooses the second runner.
os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")
# Seconds for an engine to end after SIGTERM; where it is not set, a server kills its engine without waiting.
os.environ.setdefault("VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS", "15")
# vLLM moves the offsets of generators, which only philox has.
os.environ.setdefault("ISTHMUS_HOST_RNG", "philox")
# The names that users and vLLM's own code ask for mean the chip's attention too.
for _each in (AttentionBackendEnum.CUSTOM, AttentionBackendEnum.FLASH_ATTN, AttentionBackendEnum.TRITON_ATTN):
    register_backend(_each, "isthmus_vllm.attention.ChipAttentionBackend")


class ChipPlatform(Platform):
    """The chip as a platform out of vLLM's tree."""

    _enum = PlatformEnum.OOT
    device_name = device_type = torch._C._get_accelerator().type
    dispatch_key = torch._C._dispatch_key_for_device(device_type)
    dist_backend = Backend.default_device_backend_map[device_type]
    simple_compile_backend = "eager"
    device_control_env_var = "ISTHMUS_VISIBLE_DEVICES"

    @classmethod
    def import_kernels(cls) -> None:
        """Define the operators of vLLM's compiled library that it calls on every device."""
        from isthmus_vllm import compiled, kernels  # noqa: F401

        when_imported(kernels.TOP_P, kernels.apply_top_p_once)

    @classmethod
    def import_ir_kernels(cls) -> None:
        """Import nothing: operators of vLLM's IR use their native implementations."""

    @classmethod
    def check_if_supports_dtype(cls, dtype: torch.dtype) -> None:
        """Accept every dtype; an operator without a kernel for it says so."""

    @classmethod
    def get_attn_backend_cls(
        cls, selected_backend: Any, attn_selector_config: Any, num_heads: int | None = None
    ) -> str:
        """Return the class of the attention backend, which is the only one.

        Raises:
            NotImplementedError: the model has latent (MLA) or sparse attention.
        """
        if attn_selector_config.use_mla or attn_selector_config.use_sparse:
            kind = "latent attention (MLA)" if attn_selector_config.use_mla else "sparse attention"
            raise NotImplementedError(f"isthmus: {kind} is not supported; serve a model without it")
        return AttentionBackendEnum.CUSTOM.get_path()

    @classmethod
    def get_device_capability(cls, device_id: int = 0) -> DeviceCapability | None:
        return None

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        return str(torch.get_device_module().get_device_name(device_id))

    @classmethod
    def get_device_uuid(cls, device_id: int = 0) -> str:
        return f"{cls.device_type}-{cls.visible_device_id_to_physical_device_id(device_id)}"

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        return int(torch.accelerator.get_memory_info(device_id)[1])

    @classmethod
    def get_current_memory_usage(cls, device: Any = None) -> float:
        """Bytes allocated on the device; the peak statistics begin anew."""
        torch.accelerator.reset_peak_memory_stats(device)
        return float(torch.accelerator.max_memory_allocated(device))

    @classmethod
    def set_device(cls, device: torch.device) -> None:
        torch.accelerator.set_device_index(device)

    @classmethod
    def manual_seed_all(cls, seed: int) -> None:
        torch.get_device_module().manual_seed_all(seed)

    @classmethod
    def num_compute_units(cls, device_id: int = 0) -> int:
        """The number of multiprocessors, by which kernels choose their grids."""
        return int(torch.get_device_module().get_device_properties(device_id).multi_processor_count)

    @classmethod
    def apply_config_platform_defaults(cls, vllm_config: VllmConfig) -> None:
        """Choose graphs and no compilation where the user chose neither."""
        from vllm.config import CompilationMode
        from vllm.config.compilation import CUDAGraphMode

        compilation = vllm_config.compilation_config
        if compilation.mode is None:
            compilation.mode = CompilationMode.NONE
        if compilation.cudagraph_mode is None:
            compilation.cudagraph_mode = CUDAGraphMode.FULL_AND_PIECEWISE

    @classmethod
    def check_and_update_config(cls, vllm_config: VllmConfig) -> None:
        """Choose the worker; refuse what the chip does not do.

        Raises:
            ValueError: compilation of the model, dual-batch overlap, or sleep mode with graphs.
        """
        from vllm.config import CompilationMode

        parallel, compilation = vllm_config.parallel_config, vllm_config.compilation_config
        if parallel.worker_cls == "auto":
            parallel.worker_cls = "isthmus_vllm.worker.ChipWorker"
        parallel.disable_custom_all_reduce = True
        if parallel.enable_dbo:
            raise ValueError("isthmus: dual-batch overlap is not supported; leave out --enable-dbo")
        if compilation.mode != CompilationMode.NONE:
            raise ValueError(
                f"isthmus: compilation mode {compilation.mode.name} is not supported: graphs take "
                "its place; leave out --compilation-config mode"
            )
        model = vllm_config.model_config
        if model is not None and model.enable_sleep_mode and not model.enforce_eager:
            raise ValueError(
                "isthmus: sleep mode moves weights, whose addresses graphs keep; add --enforce-eager"
            )
        os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")

    @classmethod
    def pre_register_and_update(cls, parser: FlexibleArgumentParser | None = None) -> None:
        """Serve on loopback unless --host says otherwise; vLLM's own default is every address."""
        if parser is not None:
            parser.set_defaults(host="127.0.0.1")

    def is_sleep_mode_available(self) -> bool:
        """Weights and cache may be freed while the engine waits."""
        return True

    @classmethod
    def register_triton_kernel_overrides(cls) -> None:
        from vllm.triton_utils import HAS_TRITON

        if not HAS_TRITON:
            from isthmus_vllm import kernels

            kernels.register()

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        return "isthmus_vllm.communicator.ChipCommunicator"

    @classmethod
    def get_static_graph_wrapper_cls(cls) -> str:
        return "vllm.compilation.cuda_graph.CUDAGraphWrapper"

    @classmethod
    def support_static_graph_mode(cls) -> bool:
        return True

    @classmethod
    def support_hybrid_kv_cache(cls) -> bool:
        return True

    @classmethod
    def check_runner_kv_caches_multi_layer(cls) -> None:
        """Accept layers of equal index, which draft models have: the runner keeps their caches by name."""

    @classmethod
    def is_pin_memory_available(cls) -> bool:
        return True

    @classmethod
    def get_punica_wrapper(cls) -> str:
        """The products of LoRA adapters, by vLLM's Triton kernels; by PyTorch's operators in float32.

        Raises:
            ValueError: this version of vLLM is wrong in float32.
        """
        from vllm.config import get_current_vllm_config

        wide = get_current_vllm_config().model_config.dtype == torch.float32
        if wide and not versions.applies_float32_adapters():
            raise ValueError("isthmus: LoRA in float32 needs vLLM 0.33; use --dtype bfloat16")
        return (
            "isthmus_vllm.adapters.AdapterProducts"
            if wide
            else "vllm.lora.punica_wrapper.punica_gpu.PunicaWrapperGPU"
        )

    @classmethod
    def opaque_attention_op(cls) -> bool:
        """Attention is called directly, not as an operator of torch.compile."""
        return False
