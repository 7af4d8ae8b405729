#include "core/dtype.h"

#include "driver.h"

namespace isthmus {

int dtype_code(c10::ScalarType dtype) noexcept {
  switch (dtype) {
    case c10::kChar:
      return ISTHMUS_INT8;
    case c10::kByte:
      return ISTHMUS_UINT8;
    case c10::kShort:
      return ISTHMUS_INT16;
    case c10::kInt:
      return ISTHMUS_INT32;
    case c10::kLong:
      return ISTHMUS_INT64;
    case c10::kHalf:
      return ISTHMUS_FLOAT16;
    case c10::kBFloat16:
      return ISTHMUS_BFLOAT16;
    case c10::kFloat:
      return ISTHMUS_FLOAT32;
    case c10::kDouble:
      return ISTHMUS_FLOAT64;
    case c10::kBool:
      return ISTHMUS_BOOL;
    case c10::kUInt16:
      return ISTHMUS_UINT16;
    case c10::kUInt32:
      return ISTHMUS_UINT32;
    case c10::kUInt64:
      return ISTHMUS_UINT64;
    case c10::kComplexFloat:
      return ISTHMUS_COMPLEX64;
    case c10::kComplexDouble:
      return ISTHMUS_COMPLEX128;
    case c10::kFloat8_e4m3fn:
      return ISTHMUS_FLOAT8_E4M3;
    case c10::kFloat8_e5m2:
      return ISTHMUS_FLOAT8_E5M2;
    default:
      return -1;
  }
}

}  // namespace isthmus
