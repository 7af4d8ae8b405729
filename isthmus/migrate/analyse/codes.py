"""Titles of the codes of findings; those of conversion rules come from the rules."""

from __future__ import annotations

CODES = {
    "IM001": "the source does not parse",
    "IM002": "the file is no text in its encoding",
    "IM003": "the file is larger than 10 MiB",
    "IM004": "the symbolic link leads in a circle or out of the tree",
    "IM005": "the file cannot be read",
    "IM129": "an environment variable that CUDA reads",
    "IM132": "a question for CUDA's words when its memory is full",
    "IM190": "a part of CUDA's allocator",
    "IM191": "a part of CUDA's runtime or libraries",
    "IM199": "a name of torch.cuda that no rule knows",
    "IM222": "an environment variable that NCCL reads",
    "IM290": "CUDA's process group",
    "IM301": "a library that is written for NVIDIA GPUs",
    "IM302": "a library for which Isthmus has a stand-in",
    "IM303": "a library that needs attention on another accelerator",
    "IM311": "a requirement that is part of CUDA",
    "IM312": "PyTorch's build for CUDA is required",
    "IM321": "a command of NVIDIA's",
    "IM401": "a CUDA kernel",
    "IM402": "a launch of a CUDA kernel",
    "IM403": "headers of the CUDA toolkit",
    "IM404": "assembly for NVIDIA GPUs",
    "IM405": "a CUDA graph",
    "IM406": "an operator that C++ or CUDA sources give to Python",
    "IM407": "a call of an operator of the project's own",
    "IM408": "a Triton kernel, or its launch",
    "IM409": "a CUDA kernel in Python, or its launch",
    "IM410": "an operator that is registered for CUDA",
    "IM411": "an extension that is built",
    "IM412": "a function that reaches something that only a person can port",
    "IM501": "an operator that the target lacks",
    "IM502": "an operator that the target runs on the CPU, over copies",
    "IM601": "an operator whose result's shape depends on values",
    "IM602": "indexing by a mask: the result's shape depends on values",
    "IM603": "a value of a tensor decides what is executed",
    "IM604": "batches are padded to their longest sequence",
    "IM701": "a DataLoader without workers",
    "IM702": "a DataLoader that does not pin memory",
    "IM703": "a copy to the device that waits",
    "IM704": "an optimizer that is not fused",
    "IM705": "DistributedDataParallel with the default bucket size",
    "IM706": "gradients are accumulated without no_sync",
    "IM707": "a value is read from the device in the training loop",
    "IM708": "the allocator's cache is emptied in the training loop",
    "IM709": "tensors are made on the CPU and then copied",
    "IM710": "gradients are set to zero rather than dropped",
    "IM801": "TF32 or reduced-precision reductions are switched on or off",
    "IM802": "float64, which many accelerators lack or emulate",
    "IM803": "float16 without a gradient scaler",
    "IM804": "the whole model in half precision",
    "IM805": "deterministic algorithms are asked for",
}

GROUPS = {
    "IM0": "a file that is not analysed",
    "IM1": "PyTorch's CUDA API",
    "IM2": "distributed training",
    "IM3": "a third-party library",
    "IM4": "a kernel of the project's own",
    "IM5": "an operator that the target lacks",
    "IM6": "dynamic shapes",
    "IM7": "performance",
    "IM8": "precision",
}


def title(code: str) -> str:
    """What a code means; for one of a conversion rule, its group."""
    return CODES.get(code) or GROUPS.get(code[:3], "a finding")
