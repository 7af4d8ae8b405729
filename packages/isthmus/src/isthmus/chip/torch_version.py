"""Differences between the supported versions of PyTorch.

Each entry names the version, what changed in it, and when the entry can go.
"""

import torch

_VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])

# 2.14: a complex dtype of two bfloat16, in which CUDA has the FFTs of bfloat16. Goes with 2.13.
BCOMPLEX32: torch.dtype | None = getattr(torch, "bcomplex32", None)

# 2.15: CUDA's scatter takes the dtypes of 8 bits. Goes with 2.14.
SCATTER_TAKES_FLOAT8 = _VERSION >= (2, 15)

# 2.14: names that torch.cuda has and torch.chip cannot have. Goes with 2.13.
NOT_YET_IN_CUDA = {"export_dot", "export_graph_data", "graph_annotations"} if _VERSION < (2, 14) else set()

# 2.14: a process group of several backends has a default one, also if it is a plugin's: 2.13 looks for the plugin by
# its name in capitals, and then each rank warns "No backend of type 0". Goes with 2.13.
GROUP_LACKS_DEFAULT_BACKEND = _VERSION < (2, 14)

# 2.14: torch.distributed.set_timeout sets the timeout of all backends; before it, a private function did that of gloo
# and NCCL alone. Goes with 2.13.
TIMEOUT_REACHES_LISTED_BACKENDS = _VERSION < (2, 14)

# 2.15: optimizers refuse the capture of a step that keeps numbers on the CPU on any accelerator; before it, on two
# listed ones. Goes with 2.14, and with it chip/patches/graph_capture.py.
CAPTURE_IS_CHECKED_ON_CUDA_ALONE = _VERSION < (2, 15)

# 2.15: random operators of DTensor run by a higher-order operator; before it, within a context alone. Goes with 2.14.
DTENSOR_HAS_RANDOM_OPERATOR = _VERSION >= (2, 15)

# 2.14: sequence numbers of a process group start at 0 by themselves; setting them only warns. Goes with 2.13.
SEQUENCE_NUMBER_IS_SET = _VERSION < (2, 14)

# 2.14: torch.autograd.profiler.profile lost the parameter use_cuda. Goes with 2.13.
PROFILE_TAKES_USE_CUDA = _VERSION < (2, 14)

# 2.14: the defaults of torch.nn.functional.linear_cross_entropy are no table of (device type, dtype) any more but a
# function. Goes with 2.13.
CROSS_ENTROPY_HAS_TABLE = _VERSION < (2, 14)

# 2.14: torch.utils.cpp_extension locks with filelock, which the system unlocks when the owner is killed, instead of
# torch.utils.file_baton. Goes with 2.13, and with it most of shim/build_lock.py.
KILLED_BUILD_LEAVES_LOCK = _VERSION < (2, 14)

# 2.14: has_triton asks the interface of every registered device; before it, of listed ones. Goes with 2.13, and with
# it chip/compile/dynamo_device._fill_has_triton.
HAS_TRITON_ASKS_LISTED_DEVICES = _VERSION < (2, 14)
