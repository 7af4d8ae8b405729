// Descriptions of tensors and buffers, and attributes, that operators of the older interface take.
#include <string>
#include <vector>

#include "errors.h"
#include "handles.h"

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

struct Attributes {};

struct Objects {
  Handles<TensorDescription> descriptions{6};
  Handles<Buffer> buffers{7};
  Handles<Attributes> attributes{8};
};

Objects& objects() {
  static Objects* const objects = new Objects;
  return *objects;
}

std::shared_ptr<TensorDescription> described(const void* handle) {
  require_not_null(handle, "description");
  return require_found("description", handle, objects().descriptions.get(handle));
}

}  // namespace

ISTHMUS_ASCEND_EXPORT void* aclCreateTensorDesc(int dtype, int count, const int64_t* dims, int format) {
  constexpr int kMostDims = 64;
  if (count < 0 || count > kMostDims || (count > 0 && dims == nullptr)) return nullptr;
  return objects().descriptions.add(std::make_shared<TensorDescription>(
      TensorDescription{dtype, format, std::vector<int64_t>(dims, dims + count), {}}));
}

ISTHMUS_ASCEND_EXPORT void aclDestroyTensorDesc(const void* handle) { objects().descriptions.remove(handle); }

ISTHMUS_ASCEND_EXPORT void aclSetTensorDescName(void* handle, const char* name) {
  if (name == nullptr) return;
  call("aclSetTensorDescName", [&] { described(handle)->name = name; });
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
  const auto found = objects().descriptions.get(handle);
  return found == nullptr ? -1 : found->dtype;
}

ISTHMUS_ASCEND_EXPORT int aclGetTensorDescFormat(const void* handle) {
  const auto found = objects().descriptions.get(handle);
  return found == nullptr ? -1 : found->format;
}

ISTHMUS_ASCEND_EXPORT size_t aclGetTensorDescNumDims(const void* handle) {
  const auto found = objects().descriptions.get(handle);
  return found == nullptr ? 0 : found->dims.size();
}

ISTHMUS_ASCEND_EXPORT int aclGetTensorDescDimV2(void* handle, size_t index, int64_t* size) {
  return call("aclGetTensorDescDimV2", [&] {
    const auto found = described(handle);
    require_not_null(size, "size");
    if (index >= found->dims.size())
      fail(kInvalidParameter, "dimension %zu of %zu", index, found->dims.size());
    *size = found->dims[index];
  });
}

ISTHMUS_ASCEND_EXPORT void* aclCreateDataBuffer(void* data, size_t bytes) {
  return objects().buffers.add(std::make_shared<Buffer>(Buffer{data, bytes}));
}

ISTHMUS_ASCEND_EXPORT int aclDestroyDataBuffer(const void* buffer) {
  return call("aclDestroyDataBuffer", [&] {
    if (buffer != nullptr) require_found("buffer", buffer, objects().buffers.remove(buffer));
  });
}

ISTHMUS_ASCEND_EXPORT void* aclGetDataBufferAddr(const void* buffer) {
  const auto found = objects().buffers.get(buffer);
  return found == nullptr ? nullptr : found->data;
}

ISTHMUS_ASCEND_EXPORT size_t aclGetDataBufferSizeV2(const void* buffer) {
  const auto found = objects().buffers.get(buffer);
  return found == nullptr ? 0 : found->bytes;
}

// Attributes are accepted; aclopCompileAndExecute() refuses the operators that would read them.
ISTHMUS_ASCEND_EXPORT void* aclopCreateAttr() {
  return objects().attributes.add(std::make_shared<Attributes>());
}

ISTHMUS_ASCEND_EXPORT void aclopDestroyAttr(const void* attributes) {
  objects().attributes.remove(attributes);
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
