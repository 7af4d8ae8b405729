// Copies and fills. Device addresses are checked when a call is made and again when a stream reaches it.
#include <cstring>

#include "activity.h"
#include "device.h"
#include "error.h"
#include "parts.h"

namespace isthmus::host {
namespace {

// Below this an idle stream copies in the calling thread: passing the copy to a worker costs more.
constexpr size_t kInlineBytes = size_t{256} << 10;

// One end of a copy.
struct Place {
  char* address;
  Device* device;  // null: host memory
};

Place device_place(const void* pointer, size_t bytes, const char* function, const char* argument) {
  Device* device = find_device(pointer);
  if (device == nullptr || !device->memory().covers(pointer, bytes)) {
    fail(ISTHMUS_INVALID_ARGUMENT,
         "%s: the %zu bytes at %s=%p are not inside an allocation of a device; check the pointer, the size "
         "and the kind",
         function, bytes, argument, pointer);
  }
  return {static_cast<char*>(const_cast<void*>(pointer)), device};
}

Place host_place(const void* pointer, const char* function, const char* argument) {
  require_not_null(pointer, function, argument);
  if (const Device* device = find_device(pointer)) {
    fail(ISTHMUS_INVALID_ARGUMENT,
         "%s: %s=%p is memory of chip %d, but the kind says host; pass the right kind", function, argument,
         pointer, device->index());
  }
  return {static_cast<char*>(const_cast<void*>(pointer)), nullptr};
}

struct Copy {
  Place to, from;
  size_t bytes;
};

Copy make_copy(void* to, const void* from, size_t bytes, isthmus_copy_kind kind, const char* function) {
  if (kind != ISTHMUS_HOST_TO_DEVICE && kind != ISTHMUS_DEVICE_TO_HOST && kind != ISTHMUS_DEVICE_TO_DEVICE) {
    fail(ISTHMUS_INVALID_ARGUMENT, "%s: %d is not a copy kind; pass an ISTHMUS_*_TO_* one", function,
         static_cast<int>(kind));
  }
  Copy copy{};
  copy.bytes = bytes;
  copy.to = kind == ISTHMUS_DEVICE_TO_HOST ? host_place(to, function, "to")
                                           : device_place(to, bytes, function, "to");
  copy.from = kind == ISTHMUS_HOST_TO_DEVICE ? host_place(from, function, "from")
                                             : device_place(from, bytes, function, "from");
  if (kind == ISTHMUS_DEVICE_TO_DEVICE && copy.to.device != copy.from.device) {
    fail(ISTHMUS_INVALID_ARGUMENT, "%s: from=%p is on chip %d and to=%p on chip %d; use copy_peer_async",
         function, from, copy.from.device->index(), to, copy.to.device->index());
  }
  return copy;
}

// The host address of the place; it may have been freed since the call.
char* host_address(const Place& place, size_t bytes) {
  if (place.device == nullptr) return place.address;
  DeviceMemory& memory = place.device->memory();
  if (!memory.covers(place.address, bytes)) {
    fail(ISTHMUS_DEVICE_ERROR,
         "chip %d: a stream reached the %zu bytes at %p after they were freed; synchronize before "
         "memory_free()",
         place.device->index(), bytes, static_cast<void*>(place.address));
  }
  return memory.host_address(place.address);
}

void perform(const Copy& copy) {
  std::memmove(host_address(copy.to, copy.bytes), host_address(copy.from, copy.bytes), copy.bytes);
}

// Named as in CUDA profiles.
const char* name_of(const Copy& copy) {
  if (copy.from.device == nullptr) return "Memcpy HtoD";
  if (copy.to.device == nullptr) return "Memcpy DtoH";
  return copy.to.device == copy.from.device ? "Memcpy DtoD" : "Memcpy PtoP";
}

// The copy as work of a stream.
auto work_of(const Copy& copy, const Stream& stream) {
  return activity::record_around(ISTHMUS_ACTIVITY_COPY, name_of(copy), stream, copy.bytes,
                                 [copy] { perform(copy); });
}

void require_device_of(const Stream& stream, int32_t device, const char* function) {
  if (stream.device() != device) {
    fail(ISTHMUS_INVALID_ARGUMENT,
         "%s: the memory is on chip %d and the stream on chip %d; use a stream of chip %d", function, device,
         stream.device(), device);
  }
}

// Small work on an idle stream runs immediately, except in strict mode, which delays all work.
template <typename Work>
void enqueue(Stream& stream, size_t bytes, bool pageable, Work work) {
  if (bytes <= kInlineBytes && !runtime().config.strict && stream.run_if_idle(work)) return;
  if (!pageable) {
    stream.submit(work);
  } else {  // it may be freed when the call returns
    stream.wait(stream.submit_uncaptured(work, "copy_async of pageable memory"));
  }
}

isthmus_status copy(void* to, const void* from, size_t bytes, isthmus_copy_kind kind) {
  return call([&] {
    if (bytes == 0) return ISTHMUS_OK;
    const Copy copy = make_copy(to, from, bytes, kind, "copy");
    Device& device = *(copy.to.device != nullptr ? copy.to : copy.from).device;
    work_of(copy, device.default_stream())();
    return ISTHMUS_OK;
  });
}

isthmus_status copy_async(void* to, const void* from, size_t bytes, isthmus_copy_kind kind,
                          isthmus_stream handle) {
  return call([&] {
    Stream& stream = stream_of(handle);
    if (bytes == 0) return ISTHMUS_OK;
    const Copy copy = make_copy(to, from, bytes, kind, "copy_async");
    const Place& device_side = copy.to.device != nullptr ? copy.to : copy.from;
    const Place& other_side = copy.to.device != nullptr ? copy.from : copy.to;
    require_device_of(stream, device_side.device->index(), "copy_async");
    const bool pageable = other_side.device == nullptr && !runtime().pinned.covers(other_side.address, bytes);
    enqueue(stream, bytes, pageable, work_of(copy, stream));
    return ISTHMUS_OK;
  });
}

isthmus_status copy_peer_async(void* to, int32_t to_device, const void* from, int32_t from_device,
                               size_t bytes, isthmus_stream handle) {
  return call([&] {
    Stream& stream = stream_of(handle);
    const Device* devices[] = {&device_at(to_device), &device_at(from_device)};
    if (bytes == 0) return ISTHMUS_OK;
    const Copy copy{device_place(to, bytes, "copy_peer_async", "to"),
                    device_place(from, bytes, "copy_peer_async", "from"), bytes};
    if (copy.to.device != devices[0] || copy.from.device != devices[1]) {
      fail(ISTHMUS_INVALID_ARGUMENT,
           "copy_peer_async: to=%p is on chip %d, not %d, or from=%p on chip %d, not %d; pass the memory's "
           "own devices",
           to, copy.to.device->index(), to_device, from, copy.from.device->index(), from_device);
    }
    if (stream.device() != to_device) require_device_of(stream, from_device, "copy_peer_async");
    enqueue(stream, bytes, false, work_of(copy, stream));
    return ISTHMUS_OK;
  });
}

isthmus_status set_async(void* pointer, uint8_t value, size_t bytes, isthmus_stream handle) {
  return call([&] {
    Stream& stream = stream_of(handle);
    if (bytes == 0) return ISTHMUS_OK;
    const Place place = device_place(pointer, bytes, "set_async", "pointer");
    require_device_of(stream, place.device->index(), "set_async");
    const auto work = [=] { std::memset(host_address(place, bytes), value, bytes); };
    enqueue(stream, bytes, false,
            activity::record_around(ISTHMUS_ACTIVITY_SET, "Memset", stream, bytes, work));
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

}  // namespace isthmus::host
