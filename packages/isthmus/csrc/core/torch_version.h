// Differences between the supported versions of PyTorch. Each entry names the version, what changed in it,
// and when the entry can go.
#pragma once

#include <torch/version.h>

// 2.14: autocast computes linalg_matrix_sqrth in float32; ATen's lists lack it. Goes with 2.13.
#if TORCH_VERSION_MINOR >= 14
#define ISTHMUS_FORALL_FP32_BESIDES(_) _(linalg_matrix_sqrth)
#else
#define ISTHMUS_FORALL_FP32_BESIDES(_)
#endif
