#include "stream.h"

#include "context.h"

namespace isthmus::ascend {
namespace {

// Smaller numbers are higher priorities.
constexpr uint32_t kHighestPriority = 0, kLowestPriority = 7;

struct Streams {
  Handles<Stream> handles{HandleKind::kStream};
  std::atomic<int32_t> next_id{0};
  std::mutex mutex;                                               // guards what follows
  std::unordered_map<int32_t, std::shared_ptr<Stream>> defaults;  // keyed by device
};

Streams& streams() {
  static Streams* const streams = new Streams;
  return *streams;
}

std::shared_ptr<Stream> default_stream(int32_t device) {
  const std::lock_guard<std::mutex> lock(streams().mutex);
  auto& stream = streams().defaults[device];
  if (stream == nullptr) {
    isthmus_stream queue = nullptr;
    check(chip().stream_default(&queue));
    stream = std::make_shared<Stream>(queue, device, streams().next_id++);
  }
  return stream;
}

// The host chip has no priorities: a stream only remembers its own.
void create_stream(void** handle, uint32_t priority) {
  require_not_null(handle, "stream");
  if (priority > kLowestPriority)
    fail(kInvalidParameter, "priority %u is not within %u to %u", priority, kHighestPriority,
         kLowestPriority);
  const int32_t device = current_context()->device;
  isthmus_stream queue = nullptr;
  check(chip().stream_create(ISTHMUS_STREAM_PRIORITY_DEFAULT, &queue));
  *handle = streams().handles.add(std::make_shared<Stream>(queue, device, streams().next_id++, priority));
}

}  // namespace

// Default streams, which the driver owns, are never destroyed.
Stream::~Stream() { chip().stream_destroy(queue); }

std::shared_ptr<Stream> stream_of(const void* handle) {
  if (handle == nullptr) return default_stream(current_context()->device);
  return require_found("stream", handle, streams().handles.get(handle));
}

std::shared_ptr<Stream> remove_stream(const void* handle) {
  return require_found("stream", handle, streams().handles.remove(handle));
}

isthmus_stream queue_of(const Stream& stream) {
  if (stream.updates)
    fail(kUnsupported, "stream %d updates a task group: only operators can be updated", stream.id);
  return stream.queue;
}

std::vector<std::shared_ptr<Stream>> streams_of(int32_t device) {
  std::vector<std::shared_ptr<Stream>> found{default_stream(device)};
  for (const auto& [handle, stream] : streams().handles.all())
    if (stream->device == device) found.push_back(stream);
  return found;
}

}  // namespace isthmus::ascend

using namespace isthmus::ascend;

ISTHMUS_ASCEND_EXPORT int isthmus_ascend_queue(void* stream, isthmus_stream_t** queue, int* device) {
  return call("isthmus_ascend_queue", [&] {
    require_not_null(queue, "queue");
    require_not_null(device, "device");
    const auto found = stream_of(stream);
    *queue = queue_of(*found);
    *device = found->device;
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtCreateStream(void** stream) {
  return call("aclrtCreateStream", [&] { create_stream(stream, kHighestPriority); });
}

// The host chip has no kinds of streams.
ISTHMUS_ASCEND_EXPORT int aclrtCreateStreamWithConfig(void** stream, uint32_t priority, uint32_t) {
  return call("aclrtCreateStreamWithConfig", [&] { create_stream(stream, priority); });
}

ISTHMUS_ASCEND_EXPORT int aclrtDeviceGetStreamPriorityRange(int32_t* lowest, int32_t* highest) {
  return call("aclrtDeviceGetStreamPriorityRange", [&] {
    require_not_null(lowest, "lowest");
    require_not_null(highest, "highest");
    *lowest = kLowestPriority;
    *highest = kHighestPriority;
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtStreamGetPriority(void* stream, uint32_t* priority) {
  return call("aclrtStreamGetPriority", [&] {
    require_not_null(priority, "priority");
    *priority = stream_of(stream)->priority;
  });
}

// status: 0 completed, 1 not ready.
ISTHMUS_ASCEND_EXPORT int aclrtStreamQuery(void* stream, int* status) {
  return call("aclrtStreamQuery", [&] {
    require_not_null(status, "status");
    const isthmus_status found = chip().stream_query(stream_of(stream)->queue);
    if (found != ISTHMUS_NOT_READY) check(found);
    *status = found == ISTHMUS_NOT_READY ? 1 : 0;
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtStreamGetId(void* stream, int32_t* id) {
  return call("aclrtStreamGetId", [&] {
    require_not_null(id, "id");
    *id = stream_of(stream)->id;
  });
}

// mode: 0 continues after a failed operator, 1 leaves the later ones out.
ISTHMUS_ASCEND_EXPORT int aclrtSetStreamFailureMode(void* stream, uint64_t mode) {
  return call("aclrtSetStreamFailureMode", [&] {
    if (mode != kContinueOnFailure && mode != kStopOnFailure)
      fail(kInvalidParameter, "failure mode %llu; pass 0 (continue) or 1 (stop)",
           static_cast<unsigned long long>(mode));
    const auto found = stream_of(stream);
    if (is_strict()) found->status->set_mode(static_cast<FailureMode>(mode));
  });
}

// Accepted: floating-point overflow gives infinities, as on a 910B.
ISTHMUS_ASCEND_EXPORT int aclrtSetStreamOverflowSwitch(void* stream, uint32_t flag) {
  return call("aclrtSetStreamOverflowSwitch", [&] { stream_of(stream)->overflow_switch = flag; });
}

ISTHMUS_ASCEND_EXPORT int aclrtGetStreamOverflowSwitch(void* stream, uint32_t* flag) {
  return call("aclrtGetStreamOverflowSwitch", [&] {
    require_not_null(flag, "flag");
    *flag = stream_of(stream)->overflow_switch;
  });
}
