"""Titles of finding codes that are not of a rule; rules define their own."""

from isthmus_migrate.rules.registry import all_rules

CODES = {
    "IM001": "the source does not parse",
    "IM002": "the file cannot be decoded",
    "IM003": "the file is larger than 10 MiB",
    "IM004": "the symbolic link is circular or leaves the tree",
    "IM005": "the file cannot be read",
    "IM301": "a library written for CUDA",
    "IM302": "a library for which Isthmus has a stand-in",
    "IM303": "a library that needs attention on another accelerator",
    "IM312": "a requirement of PyTorch's CUDA build",
    "IM313": "a requirement of an older PyTorch than converted sources need",
    "IM401": "a CUDA kernel",
    "IM402": "a launch of a CUDA kernel",
    "IM403": "headers of CUDA",
    "IM404": "assembly for NVIDIA GPUs",
    "IM406": "an operator that C++ or CUDA sources bind to Python",
    "IM407": "a call of one of the project's operators",
    "IM408": "a Triton kernel, or its launch",
    "IM409": "a CUDA kernel in Python, or its launch",
    "IM410": "an operator registered for CUDA",
    "IM411": "an extension to build",
    "IM412": "a file with functions that run code to port by hand",
    "IM501": "an operator that the target lacks",
    "IM502": "an operator that the target runs on the CPU by copying",
    "IM601": "an operator whose result's shape depends on values",
    "IM602": "indexing by a mask: the result's shape depends on values",
    "IM603": "control flow depends on a tensor's value",
    "IM604": "batches are padded to their longest sequence",
    "IM701": "a DataLoader without workers",
    "IM702": "a DataLoader that does not pin memory",
    "IM703": "a blocking copy to the device",
    "IM704": "an optimizer that is not fused",
    "IM705": "DistributedDataParallel with the default bucket size",
    "IM706": "gradients are accumulated without no_sync",
    "IM707": "a value is read from the device in the training loop",
    "IM708": "the allocator's cache is emptied in the training loop",
    "IM709": "tensors are created on the CPU and then copied",
    "IM710": "gradients are set to zero rather than dropped",
    "IM801": "TF32 or reduced-precision reductions are switched on or off",
    "IM802": "float64, which many accelerators lack or emulate",
    "IM803": "float16 without a gradient scaler",
    "IM804": "the whole model in half precision",
    "IM805": "deterministic algorithms are requested",
    "IM806": "a checkpoint is loaded without map_location",
}

GROUPS = {
    "IM0": "a file that is not analysed",
    "IM1": "PyTorch's CUDA API",
    "IM2": "distributed training",
    "IM3": "a third-party library",
    "IM4": "one of the project's kernels",
    "IM5": "an operator that the target lacks",
    "IM6": "dynamic shapes",
    "IM7": "performance",
    "IM8": "precision and checkpoints",
}


def title(code: str) -> str:
    """Return the title of a code; of a rule, its summary."""
    if code in CODES:
        return CODES[code]
    summaries = {rule.code: rule.summary for rule in all_rules()}
    return summaries.get(code) or GROUPS.get(code[:3], "a finding")
