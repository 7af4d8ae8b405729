// The driver interface's names of PyTorch's dtypes.
#pragma once

#include <c10/core/ScalarType.h>

namespace isthmus {

// An isthmus_dtype; -1 if the interface lacks the dtype.
int dtype_code(c10::ScalarType dtype) noexcept;

}  // namespace isthmus
