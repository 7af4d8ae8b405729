// Copies and fills.
#include <cstdint>
#include <cstring>

#include "context.h"
#include "memory.h"
#include "profiled_task.h"
#include "stream_work.h"

namespace isthmus::ascend {
namespace {

enum Kind { kHostToHost = 0, kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3, kDefault = 4 };

bool is_device(const isthmus_pointer_attributes& attributes) {
  return attributes.kind == ISTHMUS_MEMORY_DEVICE;
}

Kind kind_between(bool from_device, bool to_device) {
  return static_cast<Kind>((from_device ? kDeviceToHost : kHostToHost) |
                           (to_device ? kHostToDevice : kHostToHost));
}

// A device reaches registered host memory under its own address, so that it may be named as device memory.
Kind resolve_kind(void* to, const void* from, int kind) {
  switch (kind) {
    case kHostToHost:
    case kHostToDevice:
    case kDeviceToHost:
    case kDeviceToDevice:
      return kind_between((kind & kDeviceToHost) != 0 && !is_registered(from),
                          (kind & kHostToDevice) != 0 && !is_registered(to));
    case kDefault:
      return kind_between(is_device(attributes_of(from)), is_device(attributes_of(to)));
    default:
      fail(kInvalidParameter, "kind %d; pass an aclrtMemcpyKind from 0 to 4", kind);
  }
}

void require_room(size_t room, size_t bytes, const void* to, const void* from) {
  if (bytes > room)
    fail(kInvalidParameter, "%zu bytes do not fit into the %zu at the destination %p", bytes, room, to);
  if (bytes == 0) return;
  require_not_null(to, "destination");
  require_not_null(from, "source");
}

// The driver checks device memory.
void require_host_sides(void* to, const void* from, size_t bytes, Kind kind) {
  if (kind == kHostToHost) {
    require_accessible(from, bytes, "source", Access::kRead);
    require_accessible(to, bytes, "destination", Access::kWrite);
  }
  if (kind == kHostToDevice) require_mapped(from, bytes, "source");
  if (kind == kDeviceToHost) require_mapped(to, bytes, "destination");
}

// Enqueues a copy between devices' memory; false if both are on the stream's device.
bool copy_peer(void* to, const void* from, size_t bytes, isthmus_stream queue) {
  const int32_t to_device = attributes_of(to).device, from_device = attributes_of(from).device;
  if (to_device == from_device || to_device < 0 || from_device < 0) return false;
  check(chip().copy_peer_async(to, to_device, from, from_device, bytes, queue));
  return true;
}

void copy_async(void* to, const void* from, size_t bytes, int kind, const Stream& stream) {
  const Kind way = resolve_kind(to, from, kind);
  require_host_sides(to, from, bytes, way);
  const isthmus_stream queue = queue_of(stream);
  switch (way) {
    case kHostToHost:
      return enqueue(stream, [=] { std::memmove(to, from, bytes); });
    case kHostToDevice:
      return check(chip().copy_async(to, from, bytes, ISTHMUS_HOST_TO_DEVICE, queue));
    case kDeviceToHost:
      return check(chip().copy_async(to, from, bytes, ISTHMUS_DEVICE_TO_HOST, queue));
    default:
      if (!copy_peer(to, from, bytes, queue))
        check(chip().copy_async(to, from, bytes, ISTHMUS_DEVICE_TO_DEVICE, queue));
  }
}

void copy(void* to, const void* from, size_t bytes, int kind) {
  const Kind way = resolve_kind(to, from, kind);
  require_host_sides(to, from, bytes, way);
  switch (way) {
    case kHostToHost:
      std::memmove(to, from, bytes);
      return;
    case kHostToDevice:
      return check(chip().copy(to, from, bytes, ISTHMUS_HOST_TO_DEVICE));
    case kDeviceToHost:
      return check(chip().copy(to, from, bytes, ISTHMUS_DEVICE_TO_HOST));
    default: {
      const DeviceScope scope(std::max(attributes_of(from).device, 0));
      if (copy_peer(to, from, bytes, nullptr)) return check(chip().stream_synchronize(nullptr));
      check(chip().copy(to, from, bytes, ISTHMUS_DEVICE_TO_DEVICE));
    }
  }
}

template <typename Copy>
void copy_batch(void** to, const size_t* room, void** from, const size_t* bytes, size_t count, size_t* failed,
                Copy copy_one) {
  require_not_null(to, "destinations");
  require_not_null(room, "rooms");
  require_not_null(from, "sources");
  require_not_null(bytes, "sizes");
  require_not_null(failed, "failed");
  for (size_t i = 0; i < count; ++i) {
    *failed = i;
    require_room(room[i], bytes[i], to[i], from[i]);
    if (bytes[i] != 0) copy_one(i);
  }
  *failed = SIZE_MAX;
}

}  // namespace
}  // namespace isthmus::ascend

using namespace isthmus::ascend;

ISTHMUS_ASCEND_EXPORT int aclrtMemcpy(void* to, size_t room, const void* from, size_t bytes, int kind) {
  return call("aclrtMemcpy", [&] {
    current_context();
    require_room(room, bytes, to, from);
    if (bytes != 0) copy(to, from, bytes, kind);
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtMemcpyAsync(void* to, size_t room, const void* from, size_t bytes, int kind,
                                           void* stream) {
  return call("aclrtMemcpyAsync", [&] {
    const auto found = stream_of(stream);
    require_room(room, bytes, to, from);
    const ProfiledTask task(stream, kCopyTask, "aclrtMemcpyAsync");
    if (bytes != 0) copy_async(to, from, bytes, kind, *found);
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtMemset(void* pointer, size_t room, int32_t value, size_t bytes) {
  return call("aclrtMemset", [&] {
    current_context();
    require_room(room, bytes, pointer, pointer);
    const auto attributes = attributes_of(pointer);
    if (!is_device(attributes)) {
      require_accessible(pointer, bytes, "destination", Access::kWrite);
      std::memset(pointer, value, bytes);
      return;
    }
    const DeviceScope scope(attributes.device);
    check(chip().set_async(pointer, static_cast<uint8_t>(value), bytes, nullptr));
    check(chip().stream_synchronize(nullptr));
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtMemsetAsync(void* pointer, size_t room, int32_t value, size_t bytes,
                                           void* stream) {
  return call("aclrtMemsetAsync", [&] {
    const auto found = stream_of(stream);
    require_room(room, bytes, pointer, pointer);
    check(chip().set_async(pointer, static_cast<uint8_t>(value), bytes, queue_of(*found)));
  });
}

// Copies one by one, to and from where the addresses are; attributes say the same. failed: the number of the
// copy that failed, or the largest size_t.
ISTHMUS_ASCEND_EXPORT int aclrtMemcpyBatch(void** to, size_t* room, void** from, size_t* bytes, size_t count,
                                           const void*, size_t*, size_t, size_t* failed) {
  return call("aclrtMemcpyBatch", [&] {
    current_context();
    copy_batch(to, room, from, bytes, count, failed,
               [&](size_t i) { copy(to[i], from[i], bytes[i], kDefault); });
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtMemcpyBatchAsync(void** to, size_t* room, void** from, size_t* bytes,
                                                size_t count, const void*, size_t*, size_t, size_t* failed,
                                                void* stream) {
  return call("aclrtMemcpyBatchAsync", [&] {
    const auto found = stream_of(stream);
    copy_batch(to, room, from, bytes, count, failed,
               [&](size_t i) { copy_async(to[i], from[i], bytes[i], kDefault, *found); });
  });
}
