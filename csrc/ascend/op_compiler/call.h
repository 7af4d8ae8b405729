// A call of an operator of the older interface.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" void* aclGetDataBufferAddr(const void* buffer);
extern "C" size_t aclGetDataBufferSizeV2(const void* buffer);
extern "C" int aclGetTensorDescType(const void* description);
extern "C" size_t aclGetTensorDescNumDims(const void* description);
extern "C" int aclGetTensorDescDimV2(const void* description, size_t index, int64_t* size);

namespace isthmus::ascend {

constexpr int kSuccess = 0, kInvalidParameter = 100000, kUnsupported = 207000;

struct Call {
  const char* function;  // of the interface, for messages
  const void* const* input_descriptions;
  const void* const* input;
  const void* const* output_descriptions;
  const void* const* output;
  void* stream;
};

}  // namespace isthmus::ascend
