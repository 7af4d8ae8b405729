// Copies and fills.
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "ledger.h"
#include "parts.h"
#include "runtime.h"

namespace isthmus::npu {
namespace {

void require_end(const void* pointer, size_t bytes, bool on_device, const char* name) {
  const bool fits = on_device ? ledger().covers(pointer, bytes, ISTHMUS_MEMORY_DEVICE)
                              : pointer != nullptr && ledger().find(pointer).kind != ISTHMUS_MEMORY_DEVICE;
  if (fits) return;
  throw Failure{ISTHMUS_INVALID_ARGUMENT, std::string(name) + ": " + std::to_string(bytes) +
                                              " bytes there are not memory of the kind that the copy names"};
}

// aclrtMemcpyKind has the same values.
void require_copy(void* to, const void* from, size_t bytes, isthmus_copy_kind kind) {
  require(kind >= ISTHMUS_HOST_TO_DEVICE && kind <= ISTHMUS_DEVICE_TO_DEVICE,
          "copy: the kind is not one of isthmus_copy_kind");
  require_end(to, bytes, kind != ISTHMUS_DEVICE_TO_HOST, "to");
  require_end(from, bytes, kind != ISTHMUS_HOST_TO_DEVICE, "from");
}

isthmus_status copy(void* to, const void* from, size_t bytes, isthmus_copy_kind kind) {
  return call_on_device([&] {
    if (bytes == 0) return ISTHMUS_OK;
    require_copy(to, from, bytes, kind);
    ISTHMUS_ACL(rtMemcpy, to, bytes, from, bytes, kind);
    return ISTHMUS_OK;
  });
}

isthmus_status copy_async(void* to, const void* from, size_t bytes, isthmus_copy_kind kind,
                          isthmus_stream stream) {
  return call_on_device([&] {
    if (bytes == 0) return ISTHMUS_OK;
    require_copy(to, from, bytes, kind);
    ISTHMUS_ACL(rtMemcpyAsync, to, bytes, from, bytes, kind, stream);
    // Pageable memory may be freed as soon as the call returns.
    const void* const host = kind == ISTHMUS_HOST_TO_DEVICE ? from : to;
    if (kind != ISTHMUS_DEVICE_TO_DEVICE && !ledger().covers(host, bytes, ISTHMUS_MEMORY_PINNED))
      ISTHMUS_ACL(rtSynchronizeStream, stream);
    return ISTHMUS_OK;
  });
}

// Called once for each pair of devices.
void enable_peer(int32_t peer) {
  static std::mutex mutex;
  static std::set<std::pair<int32_t, int32_t>> enabled;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto pair = std::make_pair(current_device(), peer);
  if (enabled.count(pair) != 0) return;
  ISTHMUS_ACL_NEWER(rtDeviceEnablePeerAccess, peer, 0);
  enabled.insert(pair);
}

isthmus_status copy_peer_async(void* to, int32_t to_device, const void* from, int32_t from_device,
                               size_t bytes, isthmus_stream stream) {
  return call_on_device([&] {
    require_device(to_device);
    require_device(from_device);
    if (bytes == 0) return ISTHMUS_OK;
    require_copy(to, from, bytes, ISTHMUS_DEVICE_TO_DEVICE);
    if (to_device != from_device) enable_peer(current_device() == to_device ? from_device : to_device);
    ISTHMUS_ACL(rtMemcpyAsync, to, bytes, from, bytes, ISTHMUS_DEVICE_TO_DEVICE, stream);
    return ISTHMUS_OK;
  });
}

isthmus_status set_async(void* pointer, uint8_t value, size_t bytes, isthmus_stream stream) {
  return call_on_device([&] {
    if (bytes == 0) return ISTHMUS_OK;
    require_end(pointer, bytes, true, "pointer");
    ISTHMUS_ACL(rtMemsetAsync, pointer, bytes, value, bytes, stream);
    return ISTHMUS_OK;
  });
}

}  // namespace

void add_copy_functions(isthmus_driver& table) {
  table.copy = copy;
  table.copy_async = copy_async;
  table.copy_peer_async = copy_peer_async;
  table.set_async = set_async;
}

}  // namespace isthmus::npu
