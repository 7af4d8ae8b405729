// Descriptions of tensors and buffers, and attributes, that operators of the older interface take.
#include <string>
#include <vector>

#include "errors.h"

using namespace isthmus::ascend;

namespace {

struct TensorDescription {
  int dtype, format;
  std::vector<int64_t> dims;
  std::string name;
};

struct Buffer {
  void* data;
  size_t bytes;
};

TensorDescription& described(void* handle) {
  require_not_null(handle, "description");
  return *static_cast<TensorDescription*>(handle);
}

struct Attributes {};

}  // namespace

ISTHMUS_ASCEND_EXPORT void* aclCreateTensorDesc(int dtype, int count, const int64_t* dims, int format) {
  if (count < 0 || (count > 0 && dims == nullptr)) return nullptr;
  return new TensorDescription{dtype, format, {dims, dims + count}, {}};
}

ISTHMUS_ASCEND_EXPORT void aclDestroyTensorDesc(const void* handle) {
  delete static_cast<const TensorDescription*>(handle);
}

ISTHMUS_ASCEND_EXPORT void aclSetTensorDescName(void* handle, const char* name) {
  if (handle != nullptr && name != nullptr) described(handle).name = name;
}

// The host chip has one kind of memory and keeps every format in the order of dimensions.
ISTHMUS_ASCEND_EXPORT int aclSetTensorFormat(void* handle, int) {
  return call("aclSetTensorFormat", [&] { described(handle); });
}

ISTHMUS_ASCEND_EXPORT int aclSetTensorPlaceMent(void* handle, int) {
  return call("aclSetTensorPlaceMent", [&] { described(handle); });
}

ISTHMUS_ASCEND_EXPORT int aclSetTensorShape(void* handle, int count, const int64_t*) {
  return call("aclSetTensorShape", [&] {
    described(handle);
    if (count < 0) fail(kInvalidParameter, "%d dimensions", count);
  });
}

ISTHMUS_ASCEND_EXPORT int aclGetTensorDescType(const void* handle) {
  return handle == nullptr ? -1 : static_cast<const TensorDescription*>(handle)->dtype;
}

ISTHMUS_ASCEND_EXPORT int aclGetTensorDescFormat(const void* handle) {
  return handle == nullptr ? -1 : static_cast<const TensorDescription*>(handle)->format;
}

ISTHMUS_ASCEND_EXPORT size_t aclGetTensorDescNumDims(const void* handle) {
  return handle == nullptr ? 0 : static_cast<const TensorDescription*>(handle)->dims.size();
}

ISTHMUS_ASCEND_EXPORT int aclGetTensorDescDimV2(void* handle, size_t index, int64_t* size) {
  return call("aclGetTensorDescDimV2", [&] {
    const auto& dims = described(handle).dims;
    require_not_null(size, "size");
    if (index >= dims.size()) fail(kInvalidParameter, "dimension %zu of %zu", index, dims.size());
    *size = dims[index];
  });
}

ISTHMUS_ASCEND_EXPORT void* aclCreateDataBuffer(void* data, size_t bytes) { return new Buffer{data, bytes}; }

ISTHMUS_ASCEND_EXPORT int aclDestroyDataBuffer(const void* buffer) {
  delete static_cast<const Buffer*>(buffer);
  return kSuccess;
}

// Attributes are accepted; aclopCompileAndExecute() refuses the operators that would read them.
ISTHMUS_ASCEND_EXPORT void* aclopCreateAttr() { return new Attributes; }

ISTHMUS_ASCEND_EXPORT void aclopDestroyAttr(const void* attributes) {
  delete static_cast<const Attributes*>(attributes);
}

ISTHMUS_ASCEND_EXPORT int aclopSetAttrBool(void*, const char*, uint8_t) { return kSuccess; }
ISTHMUS_ASCEND_EXPORT int aclopSetAttrInt(void*, const char*, int64_t) { return kSuccess; }
ISTHMUS_ASCEND_EXPORT int aclopSetAttrFloat(void*, const char*, float) { return kSuccess; }
ISTHMUS_ASCEND_EXPORT int aclopSetAttrString(void*, const char*, const char*) { return kSuccess; }
ISTHMUS_ASCEND_EXPORT int aclopSetAttrDataType(void*, const char*, int) { return kSuccess; }
ISTHMUS_ASCEND_EXPORT int aclopSetAttrListInt(void*, const char*, int, const int64_t*) { return kSuccess; }
ISTHMUS_ASCEND_EXPORT int aclopSetAttrListFloat(void*, const char*, int, const float*) { return kSuccess; }
ISTHMUS_ASCEND_EXPORT int aclopSetAttrListBool(void*, const char*, int, const uint8_t*) { return kSuccess; }
ISTHMUS_ASCEND_EXPORT int aclopSetAttrListListInt(void*, const char*, int, const int*,
                                                  const int64_t* const[]) {
  return kSuccess;
}
