// Sizes of elements.
#pragma once

#include <cstddef>

#include "driver.h"

namespace isthmus {

// Bytes of an element; 0 for an unknown dtype.
constexpr size_t element_bytes(isthmus_dtype dtype) noexcept {
  switch (dtype) {
    case ISTHMUS_INT8:
    case ISTHMUS_UINT8:
    case ISTHMUS_BOOL:
    case ISTHMUS_FLOAT8_E4M3:
    case ISTHMUS_FLOAT8_E5M2:
      return 1;
    case ISTHMUS_INT16:
    case ISTHMUS_UINT16:
    case ISTHMUS_FLOAT16:
    case ISTHMUS_BFLOAT16:
      return 2;
    case ISTHMUS_INT32:
    case ISTHMUS_UINT32:
    case ISTHMUS_FLOAT32:
      return 4;
    case ISTHMUS_INT64:
    case ISTHMUS_UINT64:
    case ISTHMUS_FLOAT64:
    case ISTHMUS_COMPLEX64:
      return 8;
    case ISTHMUS_COMPLEX128:
      return 16;
  }
  return 0;
}

}  // namespace isthmus
