// Descriptions of tensors and buffers, and attributes, that operators of the older interface take.
#include <atomic>
#include <string>
#include <vector>

#include "attributes.h"
#include "errors.h"
#include "handles.h"
#include "memory.h"

using namespace isthmus::ascend;

namespace {

struct TensorDescription {
  const int dtype, format;
  std::vector<int64_t> dims;  // guarded by the mutex of all objects
  std::atomic<bool> on_host{false};

  TensorDescription(int dtype, int format, std::vector<int64_t> dims)
      : dtype(dtype), format(format), dims(std::move(dims)) {}
};

struct Buffer {
  void* data;
  size_t bytes;
};

struct Objects {
  Handles<TensorDescription> descriptions{HandleKind::kDescription};
  Handles<Buffer> buffers{HandleKind::kBuffer};
  Handles<Attributes> attributes{HandleKind::kAttributes};
  std::mutex mutex;  // guards the contents of attributes and the sizes of descriptions
};

Objects& objects() {
  static Objects* const objects = new Objects;
  return *objects;
}

std::shared_ptr<TensorDescription> find_description(const void* handle) {
  require_not_null(handle, "description");
  return require_found("description", handle, objects().descriptions.get(handle));
}

int set_attribute(const char* function, const void* handle, const char* name, Attribute value) {
  return call(function, [&] {
    require_not_null(name, "name");
    const auto found = require_found("attributes", handle, objects().attributes.get(handle));
    const std::lock_guard<std::mutex> lock(objects().mutex);
    (*found)[name] = std::move(value);
  });
}

template <typename Element, typename Given>
int set_list(const char* function, const void* handle, const char* name, int count, const Given* values) {
  std::vector<Element> list;
  const int status = call(function, [&] {
    if (count < 0 || (count > 0 && values == nullptr))
      fail(kInvalidParameter, "the list is null, or its length negative");
    require_accessible(values, static_cast<size_t>(count) * sizeof(Given), "list", Access::kRead);
    list.assign(values, values + count);
  });
  return status != kSuccess ? status : set_attribute(function, handle, name, std::move(list));
}

}  // namespace

ISTHMUS_ASCEND_EXPORT void* aclCreateTensorDesc(int dtype, int count, const int64_t* dims, int format) {
  constexpr int kMostDims = 64;
  if (count < 0 || count > kMostDims || (count > 0 && dims == nullptr)) return nullptr;
  return objects().descriptions.add(
      std::make_shared<TensorDescription>(dtype, format, std::vector<int64_t>(dims, dims + count)));
}

ISTHMUS_ASCEND_EXPORT void aclDestroyTensorDesc(const void* handle) { objects().descriptions.remove(handle); }

ISTHMUS_ASCEND_EXPORT void aclSetTensorDescName(void* handle, const char* name) {
  call("aclSetTensorDescName", [&] {
    require_not_null(name, "name");
    find_description(handle);
  });
}

// The host chip has one kind of memory and keeps every format in the order of dimensions.
ISTHMUS_ASCEND_EXPORT int aclSetTensorFormat(void* handle, int) {
  return call("aclSetTensorFormat", [&] { find_description(handle); });
}

ISTHMUS_ASCEND_EXPORT int aclSetTensorPlaceMent(void* handle, int memory) {
  return call("aclSetTensorPlaceMent", [&] { find_description(handle)->on_host = memory != 0; });
}

ISTHMUS_ASCEND_EXPORT bool isthmus_ascend_on_host(const void* handle) {
  const auto found = objects().descriptions.get(handle);
  return found != nullptr && found->on_host;
}

ISTHMUS_ASCEND_EXPORT int aclSetTensorShape(void* handle, int count, const int64_t*) {
  return call("aclSetTensorShape", [&] {
    find_description(handle);
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
  const std::lock_guard<std::mutex> lock(objects().mutex);
  return found == nullptr ? 0 : found->dims.size();
}

ISTHMUS_ASCEND_EXPORT int aclGetTensorDescDimV2(void* handle, size_t index, int64_t* size) {
  return call("aclGetTensorDescDimV2", [&] {
    const auto found = find_description(handle);
    require_not_null(size, "size");
    const std::lock_guard<std::mutex> lock(objects().mutex);
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

ISTHMUS_ASCEND_EXPORT void* aclopCreateAttr() {
  return objects().attributes.add(std::make_shared<Attributes>());
}

ISTHMUS_ASCEND_EXPORT void aclopDestroyAttr(const void* attributes) {
  objects().attributes.remove(attributes);
}

ISTHMUS_ASCEND_EXPORT void isthmus_ascend_attributes(const void* handle, Attributes* copy) {
  const auto found = objects().attributes.get(handle);
  if (found == nullptr) return;
  const std::lock_guard<std::mutex> lock(objects().mutex);
  *copy = *found;
}

ISTHMUS_ASCEND_EXPORT int aclopSetAttrBool(void* handle, const char* name, uint8_t value) {
  return set_attribute("aclopSetAttrBool", handle, name, int64_t{value != 0});
}

ISTHMUS_ASCEND_EXPORT int aclopSetAttrInt(void* handle, const char* name, int64_t value) {
  return set_attribute("aclopSetAttrInt", handle, name, value);
}

ISTHMUS_ASCEND_EXPORT int aclopSetAttrFloat(void* handle, const char* name, float value) {
  return set_attribute("aclopSetAttrFloat", handle, name, double{value});
}

ISTHMUS_ASCEND_EXPORT int aclopSetAttrString(void* handle, const char* name, const char* value) {
  return set_attribute("aclopSetAttrString", handle, name, std::string(value == nullptr ? "" : value));
}

ISTHMUS_ASCEND_EXPORT int aclopSetAttrDataType(void* handle, const char* name, int value) {
  return set_attribute("aclopSetAttrDataType", handle, name, int64_t{value});
}

ISTHMUS_ASCEND_EXPORT int aclopSetAttrListInt(void* handle, const char* name, int count,
                                              const int64_t* values) {
  return set_list<int64_t>("aclopSetAttrListInt", handle, name, count, values);
}

ISTHMUS_ASCEND_EXPORT int aclopSetAttrListFloat(void* handle, const char* name, int count,
                                                const float* values) {
  return set_list<float>("aclopSetAttrListFloat", handle, name, count, values);
}

ISTHMUS_ASCEND_EXPORT int aclopSetAttrListBool(void* handle, const char* name, int count,
                                               const uint8_t* values) {
  return set_list<int64_t>("aclopSetAttrListBool", handle, name, count, values);
}

ISTHMUS_ASCEND_EXPORT int aclopSetAttrListListInt(void* handle, const char* name, int, const int*,
                                                  const int64_t* const[]) {
  return set_attribute("aclopSetAttrListListInt", handle, name, Unread{});
}
