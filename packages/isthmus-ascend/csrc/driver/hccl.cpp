#include "hccl.h"

#include <string>

#include "library.h"

namespace isthmus::npu {
namespace {

constexpr const char* kLibrary = "libhccl.so";

// Values of HcclResult.
isthmus_status status_of(int code) {
  switch (code) {
    case 1:  // wrong parameter
    case 2:  // null pointer
      return ISTHMUS_INVALID_ARGUMENT;
    case 3:
    case 24:
      return ISTHMUS_OUT_OF_MEMORY;
    case 5:
      return ISTHMUS_UNSUPPORTED;
    case 9:
      return ISTHMUS_TIMEOUT;
    case 11:  // to 14: the connections to other ranks
    case 12:
    case 13:
    case 14:
    case 21:  // another rank failed
      return ISTHMUS_PEER_LOST;
    case 22:  // suspended, after an error of the device
      return ISTHMUS_DEVICE_ERROR;
    default:
      return ISTHMUS_INTERNAL;
  }
}

Hccl open_library() {
  const Library library(kLibrary, ISTHMUS_UNSUPPORTED);
  Hccl found;
#define ISTHMUS_HCCL_FIND(name, result, arguments) \
  found.name = reinterpret_cast<result(*) arguments>(library.require("Hccl" #name));
  ISTHMUS_HCCL_FUNCTIONS(ISTHMUS_HCCL_FIND)
#undef ISTHMUS_HCCL_FIND
  return found;
}

}  // namespace

const Hccl& hccl() {
  static const Hccl functions = open_library();
  return functions;
}

void check_hccl(int code, const char* function) {
  if (code == 0) return;
  const char* const kind = hccl().GetErrorString(code);
  throw Failure{status_of(code), std::string(function) + " failed with " + std::to_string(code) +
                                     (kind == nullptr ? "" : std::string(" (") + kind + ")") +
                                     recent_message()};
}

// Other dtypes are refused by some toolkits and devices.
std::optional<int> reduced_dtype(isthmus_dtype dtype) {
  switch (dtype) {
    case ISTHMUS_INT8:
      return kInt8;
    case ISTHMUS_INT16:
      return 1;
    case ISTHMUS_INT32:
      return 2;
    case ISTHMUS_FLOAT16:
      return 3;
    case ISTHMUS_FLOAT32:
      return 4;
    case ISTHMUS_INT64:
      return 5;
    case ISTHMUS_BFLOAT16:
      return 11;
    default:
      return std::nullopt;
  }
}

std::optional<int> reduction(isthmus_reduce_op op) {
  switch (op) {
    case ISTHMUS_SUM:
      return 0;
    case ISTHMUS_PRODUCT:
      return 1;
    case ISTHMUS_MAX:
      return 2;
    case ISTHMUS_MIN:
      return 3;
    default:
      return std::nullopt;
  }
}

}  // namespace isthmus::npu
