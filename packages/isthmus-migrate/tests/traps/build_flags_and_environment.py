"""Compiler flags and environment variable names contain cuda in both cases, and must survive letter for letter."""

# answer: 0x9eeacb24
# answer: ['-lcudart', '--cuda-gpu-arch=sm_80']
# answer: 12.4
# answer: 0
# answer: True
import os
import zlib

import torch

os.environ["DEMO_CUDA_HOME"] = "/opt/toolkits/cuda-12.4"
os.environ["DEMO_CUDA_LAUNCH"] = "0"

NVCC_FLAGS = ["-O3", "-x", "cuda", "-DWITH_CUDA=1", "--cuda-gpu-arch=sm_80"]
SOURCES = ["ext/cuda/ops_kernel.cu", "ext/cpu/ops.cpp"]


def link_flags():
    home = os.environ.get("DEMO_CUDA_HOME", "/usr/local/cuda")
    return [f"-L{home}/lib64", "-lcudart"]


command = " ".join(["nvcc", *NVCC_FLAGS, *link_flags(), *SOURCES])
print(hex(zlib.crc32(command.encode())))
wanted = ("-l" + "cu", "--cu")
print([flag for flag in link_flags() + NVCC_FLAGS if flag.startswith(wanted)])
print(os.environ["DEMO_" + "CUDA" + "_HOME"].rsplit("-", 1)[1])
print(int(os.environ.get("DEMO_CUDA_LAUNCH", "1")))
have_ext = "WITH_CUDA" in command and torch.cuda.is_available()
x = torch.ones(1).cuda() if have_ext else torch.ones(1)
print(x.is_cuda)
