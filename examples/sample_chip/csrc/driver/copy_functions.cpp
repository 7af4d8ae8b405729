// Copies and fills.
#include <cstring>

#include "runtime.h"

namespace sample {
namespace {

void check_end(const void* pointer, size_t bytes, bool on_device, const char* name) {
  const int32_t device = device_of(pointer);
  const bool fits = on_device ? device >= 0 && runtime().devices[device].memory.covers(pointer, bytes)
                              : pointer != nullptr && device < 0;
  if (fits) return;
  throw Failure{ISTHMUS_INVALID_ARGUMENT, std::string(name) + ": " + std::to_string(bytes) +
                                              " bytes there are not memory of the kind that the copy names"};
}

void check_copy(void* to, const void* from, size_t bytes, isthmus_copy_kind kind) {
  require(kind >= ISTHMUS_HOST_TO_DEVICE && kind <= ISTHMUS_DEVICE_TO_DEVICE, "copy: unknown kind");
  check_end(to, bytes, kind != ISTHMUS_DEVICE_TO_HOST, "to");
  check_end(from, bytes, kind != ISTHMUS_HOST_TO_DEVICE, "from");
}

isthmus_status copy(void* to, const void* from, size_t bytes, isthmus_copy_kind kind) {
  return guarded([&] {
    if (bytes == 0) return ISTHMUS_OK;
    check_copy(to, from, bytes, kind);
    std::memmove(to, from, bytes);
    return ISTHMUS_OK;
  });
}

isthmus_status copy_async(void* to, const void* from, size_t bytes, isthmus_copy_kind kind,
                          isthmus_stream handle) {
  return guarded([&] {
    const auto stream = stream_of(handle);
    if (bytes == 0) return ISTHMUS_OK;
    check_copy(to, from, bytes, kind);
    stream->submit([=] { std::memmove(to, from, bytes); });
    // Pageable memory may be freed as soon as the call returns.
    const void* host_side = kind == ISTHMUS_HOST_TO_DEVICE ? from : to;
    if (kind != ISTHMUS_DEVICE_TO_DEVICE && !runtime().host.covers(host_side, bytes)) stream->wait();
    return ISTHMUS_OK;
  });
}

isthmus_status set_async(void* pointer, uint8_t value, size_t bytes, isthmus_stream handle) {
  return guarded([&] {
    const auto stream = stream_of(handle);
    if (bytes == 0) return ISTHMUS_OK;
    check_end(pointer, bytes, true, "pointer");
    stream->submit([=] { std::memset(pointer, value, bytes); });
    return ISTHMUS_OK;
  });
}

}  // namespace

void add_copy_functions(isthmus_driver& table) {
  table.copy = copy;
  table.copy_async = copy_async;
  table.set_async = set_async;
}

}  // namespace sample
