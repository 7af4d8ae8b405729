"""Third-party libraries that depend on CUDA, as data: severity and replacement of each."""

import re
from typing import NamedTuple

from isthmus_migrate.source.findings import Severity

_TRITON = (
    "`isthmus run` interprets its Triton kernels on the host chip; elsewhere they need a Triton backend, or "
)


class Library(NamedTuple):
    """Compatibility of a library, or of a part of it.

    Attributes:
        code: IM301: written for NVIDIA GPUs; IM302: Isthmus has a stand-in; IM303: needs attention; or the code
            of the rule that converts it.
        severity: who has to act.
        advice: what to do.
    """

    code: str
    severity: Severity
    advice: str


def _advise(advice: str, *names: str) -> dict[str, Library]:
    return dict.fromkeys(names, Library("IM301", Severity.MANUAL, advice))


def _stand_in(package: str, source: str, *names: str) -> dict[str, Library]:
    """Entries of names that ``--provide`` has for a package, and what to use in the source instead of them."""
    option = f"`isthmus run --provide {package}` puts modules of this name in its place"
    return dict.fromkeys(names, Library("IM302", Severity.REVIEW, f"{option}; in the source, {source}"))


def _attention(advice: str, *names: str) -> dict[str, Library]:
    return dict.fromkeys(names, Library("IM303", Severity.REVIEW, advice))


def _converts(code: str, *names: str) -> dict[str, Library]:
    advice = (
        "`isthmus migrate convert` puts it in where the arguments allow; "
        "unconverted, `isthmus run --provide apex` has optimizers and normalizations of these names"
    )
    return dict.fromkeys(names, Library(code, Severity.REVIEW, advice))


_NOT_PROVIDED = "it is not in the stand-in; use isthmus.ops or torch.nn.functional"

# Dotted names of modules and their members; the longest match counts. tests/test_third_party.py compares them with
# the stand-ins and the patches of `isthmus run`.
LIBRARIES: dict[str, Library] = {
    **_attention("import its parts by name: some are converted, some have a stand-in, some have neither", "apex"),
    **_converts("IM230", "apex.amp"),
    **_stand_in(
        "apex", "torch.nn.parallel.DistributedDataParallel and torch.nn.SyncBatchNorm", "apex.parallel"
    ),
    **_stand_in("apex", "gradients scaled by hand before an optimizer's step", "apex.parallel.LARC"),
    **_stand_in("apex", "torch.amp", "apex.fp16_utils"),
    **_stand_in(
        "apex", "an optimizer of torch.optim",
        "apex.optimizers.FusedLAMB", "apex.optimizers.fused_lamb.FusedLAMB",
    ),
    **_advise(
        "use torch.nn, torch.optim and isthmus.ops",
        "apex.optimizers", "apex.contrib", "apex.transformer", "apex.mlp", "apex.fused_dense",
    ),
    **_converts("IM231", "apex.parallel.DistributedDataParallel", "apex.parallel.convert_syncbn_model"),
    **_converts(
        "IM232",
        "apex.optimizers.FusedAdam", "apex.optimizers.fused_adam.FusedAdam",
        "apex.optimizers.FusedSGD", "apex.optimizers.fused_sgd.FusedSGD",
        "apex.normalization.FusedLayerNorm", "apex.normalization.fused_layer_norm.FusedLayerNorm",
        "apex.normalization.FusedRMSNorm", "apex.normalization.fused_layer_norm.FusedRMSNorm",
    ),
    **_stand_in("apex", "torch.nn.LayerNorm and isthmus.ops.RMSNorm", "apex.normalization"),
    **_stand_in(
        "apex", "isthmus.ops.clip_grad_norm_ and torch._foreach_*", "apex.multi_tensor_apply", "amp_C"
    ),
    **_stand_in("apex", "a matrix product added to main_grad", "fused_weight_gradient_mlp_cuda"),
    **_advise(
        "use torch.nn.functional and isthmus.ops (scaled_masked_softmax, rotary)",
        "apex_C", "fused_layer_norm_cuda", "scaled_masked_softmax_cuda", "scaled_upper_triang_masked_softmax_cuda",
        "scaled_softmax_cuda", "fused_rotary_positional_embedding", "fused_dense_cuda", "fast_layer_norm", "mlp_cuda",
    ),
    **_stand_in(
        "flash_attn", "isthmus.ops.flash_attn_func, or torch.nn.functional.scaled_dot_product_attention",
        "flash_attn", "flash_attn.flash_attn_interface", "flash_attn.modules.mha", "flash_attn_interface",
    ),
    **_stand_in("flash_attn", "isthmus.ops.unpad_input and pad_input", "flash_attn.bert_padding"),
    **_stand_in(
        "flash_attn", "isthmus.ops.apply_rotary_emb", "flash_attn.layers.rotary", "flash_attn.ops.triton.rotary"
    ),
    **_stand_in("flash_attn", "isthmus.ops.rms_norm", "flash_attn.ops.rms_norm"),
    **_stand_in("flash_attn", "isthmus.ops.cross_entropy", "flash_attn.losses.cross_entropy"),
    **_advise(
        _NOT_PROVIDED,
        "flash_attn.ops", "flash_attn.models", "flash_attn.utils", "flash_attn.modules", "flash_attn_2_cuda",
        "flash_attn_3", "flash_attn_triton", "dropout_layer_norm", "rotary_emb", "xentropy_cuda_lib",
    ),
    **_stand_in(
        "xformers", "torch.nn.functional.scaled_dot_product_attention or isthmus.ops.flash_attn_func", "xformers"
    ),
    **_advise(
        _NOT_PROVIDED, "xformers.benchmarks", "xformers.components", "xformers.factory", "xformers.sparse",
        "xformers.triton",
    ),
    **_advise("most of its hub's builds are for CUDA; use isthmus.ops or torch.nn.functional", "kernels.get_kernel"),
    **_attention(
        "`isthmus run` computes its optimizers; elsewhere use torch.optim.AdamW or isthmus.ops.AdamW",
        "bitsandbytes.optim",
    ),
    **_attention(
        "its kernels are CUDA's first; where they fail, load the weights in bfloat16, into torch.nn's layers",
        "bitsandbytes",
    ),
    **_advise("use torch.distributed.fsdp, or Megatron by isthmus.megatron", "bmtrain", "model_center"),
    **_advise("use isthmus.ops.AdamW or torch.optim.AdamW", "colossalai.nn.optimizer"),
    **_attention("its accelerators are CUDA and NPU; use torch.distributed.fsdp elsewhere", "colossalai"),
    **_stand_in("grouped_gemm", "isthmus.ops.grouped_matmul", "grouped_gemm"),
    **_advise("its kernels are for NVIDIA GPUs; use torch.distributed.all_to_all_single", "deep_ep"),
    **_attention("its operators are Triton kernels; without them results depend on the batch", "batch_invariant_ops"),
    **_advise("its kernels are for CUDA and ROCm; use isthmus.ops (permute, grouped_matmul)", "tutel"),
    **_attention(
        "it skips the test on devices other than CUDA, HPU and XPU; ask torch.accelerator.device_count()",
        "torch.testing._internal.common_distributed.skip_if_lt_x_gpu",
    ),
    **_attention(
        "it runs on the CPU where the device is not CUDA, HPU or XPU; use DTensorTestBase, which knows the others",
        "torch.testing._internal.common_fsdp.FSDPTest",
    ),
    **_advise("its devices are CUDA, MPS, TPU and CPU; use a loop of your own or transformers.Trainer", "composer"),
    **_advise("use torch.distributed and DistributedDataParallel", "horovod"),
    **_advise(
        "use torch.accelerator.get_memory_info, or the metrics of `isthmus run`",
        "pynvml", "nvidia_smi", "py3nvml", "GPUtil", "gpustat", "nvitop",
    ),
    **_advise("use torchvision.transforms.v2 and a DataLoader with workers", "nvidia.dali"),
    **_attention("its ranges do nothing elsewhere; use torch.profiler.record_function", "nvtx"),
    **_stand_in("transformer_engine", "torch.nn and isthmus.ops, without FP8", "transformer_engine"),
    **_attention("it is compiled for CUDA; import transformer_engine instead", "transformer_engine_torch"),
    **_attention("isthmus.deepspeed lets it run on the chip; its CUDA operators are replaced", "deepspeed"),
    **_attention("put `import isthmus.megatron` before it", "megatron"),
    **_attention(
        "isthmus.deepspeed has its operators on the chip; elsewhere use isthmus.ops.AdamW",
        "deepspeed.ops.adam.FusedAdam",
    ),
    **_advise("use isthmus.ops.AdamW", "deepspeed.ops.lamb"),
    **_stand_in("mamba_ssm", "its recurrence in PyTorch operators", "mamba_ssm"),
    **_stand_in("causal_conv1d", "torch.nn.functional.conv1d", "causal_conv1d"),
    **_advise(
        "it is not in the stand-in; write it in PyTorch operators",
        "mamba_ssm.Mamba2", "mamba_ssm.Mamba3", "mamba_ssm.distributed", "mamba_ssm.models", "mamba_ssm.utils",
        "mamba_ssm.modules", "mamba_ssm.ops.triton", "causal_conv1d_cuda", "selective_scan_cuda",
    ),
    **_stand_in(
        "mamba_ssm", "its recurrence in PyTorch operators",
        "mamba_ssm.modules.mamba_simple", "mamba_ssm.ops.triton.layernorm_gated",
        "mamba_ssm.ops.triton.selective_state_update", "mamba_ssm.ops.triton.ssd_combined",
    ),
    **_attention(_TRITON + "PyTorch's operators instead", "fla", "native_sparse_attention"),
    **_attention(_TRITON + "isthmus.ops, which has RMSNorm, SwiGLU, rotary, losses", "liger_kernel"),
    **_attention("it is written for CUDA first; see its platform plugins", "vllm", "sglang", "lmdeploy"),
    **_advise(
        "its kernels are CUDA's; load the weights in bfloat16",
        "auto_gptq", "gptqmodel", "awq", "awq_ext", "exllama", "exllamav2", "eetq", "marlin", "quip_cuda",
    ),
    **_attention("its low-precision kernels are CUDA's; quantization in PyTorch operators works", "torchao", "hqq"),
    **_advise("it is NVIDIA's compiler; use torch.compile", "tensorrt", "torch_tensorrt", "torch2trt", "trtllm"),
    **_advise(
        "it drives CUDA itself; use PyTorch", "pycuda", "cuda.bindings", "cuda.cudart", "cuda.nvrtc", "cutlass"
    ),
    **_advise("it runs on NVIDIA GPUs; use pandas or scikit-learn", "cudf", "cuml", "cugraph", "rmm", "cuspatial"),
    **_attention("its wheels hold CUDA kernels; scatter_reduce and index_add are PyTorch's own",
        "torch_scatter", "torch_sparse", "torch_cluster", "torch_spline_conv", "pyg_lib"),
    **_attention("its wheels are for CUDA or CPU; build it for the CPU and copy, or use torch_geometric", "dgl"),
    **_advise(
        "its operators are CUDA C++; build for the CPU and copy, or write them in PyTorch operators",
        "spconv", "torchsparse", "MinkowskiEngine", "nvdiffrast", "kaolin", "tinycudann", "gsplat",
        "diff_gaussian_rasterization", "simple_knn", "pointnet2_ops", "pointops", "MultiScaleDeformableAttention",
    ),
    **_attention(
        "its compiled operators run on the CPU, CUDA and few others: check that it has the target's",
        "mmcv.ops", "pytorch3d",
        *(f"detectron2.{name}" for name in ("_C", "engine", "layers", "modeling", "structures")),
        *(f"torchvision.ops.{name}" for name in (
            "nms", "batched_nms", "boxes.nms", "boxes.batched_nms", "roi_align", "RoIAlign", "MultiScaleRoIAlign",
            "roi_pool", "RoIPool", "ps_roi_align", "PSRoIAlign", "ps_roi_pool", "PSRoIPool", "deform_conv2d",
            "DeformConv2d", "deform_conv",
        )),
    ),
    **_advise("its arrays are CUDA's; use torch, or numpy on the CPU", "cupy"),
    **_attention("its devices are the CPU and CUDA", "ctranslate2"),
    **_attention("its GPU indices are CUDA's; use the CPU's", "faiss_gpu"),
    **_attention("its GPU provider is CUDA's; install onnxruntime, or its build for the target", "onnxruntime_gpu"),
    **_attention(
        "its default device is CUDA: pass the type of the device in use, DEVICE.type",
        "ultralytics.utils.torch_utils.autocast",
    ),
    **_attention(
        "it waits for CUDA only, so that its times are wrong elsewhere: call torch.accelerator.synchronize()",
        "ultralytics.utils.torch_utils.time_sync", "ultralytics.utils.ops.Profile",
    ),
    **_advise("its other process groups are for gloo and XPU; write one for the target's backend",
        "torchft.ProcessGroupNCCL", "torchft.ProcessGroupBabyNCCL", "torchft.process_group.ProcessGroupNCCL"),
    **_attention("replaced by torch.distributed.fsdp", "fairscale"),
    **_advise("it is CUDA C++; torch.nn.functional.ctc_loss does it", "warpctc_pytorch", "warp_rnnt"),
}  # fmt: skip

# Distribution names that differ from the module's; "-" and "_" are equal.
DISTRIBUTIONS = {
    "autoawq": "awq",
    "detectron2": "detectron2.layers",
    "mosaicml": "composer",
    "nvidia_ml_py": "pynvml",
    "nvidia_ml_py3": "pynvml",
    "nvidia_dali": "nvidia.dali",
    "flash_linear_attention": "fla",
    "mmcv_full": "mmcv.ops",
    "cuda_python": "cuda.bindings",
    "nvidia_cutlass": "cutlass",
    "nvidia_tensorrt": "tensorrt",
    "tensorrt_llm": "trtllm",
    "megatron_core": "megatron",
}


def library(name: str) -> tuple[str, Library] | None:
    """Return the longest entry that contains a dotted name."""
    while name:
        if name in LIBRARIES:
            return name, LIBRARIES[name]
        name = name.rpartition(".")[0]
    return None


def distribution(name: str) -> tuple[str, Library] | None:
    """Return the entry of a distribution, such as ``"flash-attn"`` or ``"nvidia-dali-cuda120"``."""
    plain = _VERSION.sub("", name.lower().replace("-", "_"))
    return library(_MODULES.get(plain, ""))


_VERSION = re.compile(r"_cu(da)?\d+x?(_plus)?$")  # suffix of a build for a CUDA version
_MODULES = {**{name.lower(): name for name in LIBRARIES}, **DISTRIBUTIONS}
