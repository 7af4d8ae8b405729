// Operators that copy views element by element, with which torch_npu makes tensors contiguous on their way to
// another device.
#pragma once

#include "status.h"

namespace isthmus::ascend {

// AsStrided. Inputs: the memory; sizes, strides and offset, int64 on the host. Output: contiguous.
int as_strided(const OlderCall& call);

// ViewCopy. Inputs: the memory to copy to, with its sizes, strides and offset, then those to copy from.
int view_copy(const OlderCall& call);

// Transpose. Inputs: contiguous memory of the description's size; the order of dimensions, int64 on the host.
// Output: contiguous.
int transpose(const OlderCall& call);

}  // namespace isthmus::ascend
