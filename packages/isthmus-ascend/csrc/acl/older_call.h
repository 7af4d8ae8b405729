// A call of an operator of the older interface, as libacl_op_compiler.so and libopapi.so see it.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" void* aclGetDataBufferAddr(const void* buffer);
extern "C" size_t aclGetDataBufferSizeV2(const void* buffer);
extern "C" int aclGetTensorDescType(const void* description);
extern "C" size_t aclGetTensorDescNumDims(const void* description);
extern "C" int aclGetTensorDescDimV2(const void* description, size_t index, int64_t* size);

// Whether a tensor lies on the host, and may be freed after the call.
extern "C" bool isthmus_ascend_on_host(const void* description);

namespace isthmus::ascend {

struct OlderCall {
  const char* function;  // name in the interface, for messages
  const void* const* input_descriptions;
  const void* const* input;
  const void* const* output_descriptions;
  const void* const* output;
  void* stream;
  int inputs, outputs;
  const void* attributes;
};

// isthmus_ascend_compute_older() of libopapi.so: enqueues an operator of older.table. Returns false if the
// operator is not in the table; else *status is 0, or an error with its message.
using ComputeOlder = bool (*)(const char* name, const OlderCall& call, int* status);

}  // namespace isthmus::ascend
