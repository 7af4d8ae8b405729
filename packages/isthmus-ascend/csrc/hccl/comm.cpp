// Life of communicators.
#include "comm.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "acl/handles.h"

namespace isthmus::ascend::hccl {
namespace {

constexpr size_t kRootInfoBytes = 4108;
constexpr size_t kNameBytes = 128;
constexpr int64_t kTimeoutSeconds = 1836;  // default of HCCL_EXEC_TIMEOUT
static_assert(kRootInfoBytes >= sizeof(isthmus_unique_id));

Handles<Comm>& comms() {
  static Handles<Comm>* const comms = new Handles<Comm>{HandleKind::kComm};
  return *comms;
}

// The failure of a communicator of the device, once. The streams that wait for its stream do not have it.
const char* failure_of(int device) {
  for (const auto& [handle, comm] : comms().all()) {
    if (comm->device != device || !comm->is_used) continue;
    const isthmus_status status = chip().comm_error(comm->comm);
    const bool is_destroyed = status == ISTHMUS_INVALID_ARGUMENT;
    if (status != ISTHMUS_OK && !is_destroyed && !comm->is_reported.exchange(true))
      return chip().last_error();
  }
  return nullptr;
}

void create_from_root_info(uint32_t size, const void* info, uint32_t rank, void** comm) {
  require_not_null(info, "root info");
  require_not_null(comm, "comm");
  isthmus_unique_id id;
  std::memcpy(id.bytes, info, sizeof(id.bytes));
  *comm = create(id, size, rank);
}

}  // namespace

const isthmus_driver& chip() {
  const isthmus_driver* found = isthmus_ascend_chip();
  if (found == nullptr) throw Failure{kInternal, "the host chip cannot be opened"};
  return *found;
}

int code_of(isthmus_status status) noexcept {
  switch (status) {
    case ISTHMUS_OK:
      return kSuccess;
    case ISTHMUS_INVALID_ARGUMENT:
    case ISTHMUS_NO_DEVICE:
      return kInvalidParameter;
    case ISTHMUS_OUT_OF_MEMORY:
      return kOutOfMemory;
    case ISTHMUS_UNSUPPORTED:
      return kUnsupported;
    case ISTHMUS_TIMEOUT:
      return kTimeout;
    case ISTHMUS_PEER_LOST:
      return kRemoteFailure;
    default:
      return kInternal;
  }
}

void check(isthmus_status status) {
  if (status != ISTHMUS_OK) throw Failure{code_of(status), chip().last_error()};
}

void require_not_null(const void* pointer, const char* argument) {
  if (pointer == nullptr)
    throw Failure{kNullPointer, std::string(argument) + " is null; pass a valid pointer"};
}

std::shared_ptr<Comm> comm_of(const void* handle) {
  auto comm = comms().get(handle);
  if (comm == nullptr)
    throw Failure{kInvalidParameter, "the communicator does not exist; it may have been destroyed"};
  return comm;
}

std::shared_ptr<Comm> used_comm(const void* handle) {
  auto comm = comm_of(handle);
  comm->is_used = true;
  return comm;
}

int64_t milliseconds_of(const char* variable, int64_t seconds_if_unset) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value == '\0') return seconds_if_unset * 1000;
  char* end = nullptr;
  const double seconds = std::strtod(value, &end);
  if (*end != '\0' || !(seconds >= 0))
    throw Failure{kInvalidParameter, std::string(variable) + "=" + value + " is not a number of seconds"};
  return static_cast<int64_t>(seconds * 1000);
}

// FNV-1a.
std::string name_of(std::string_view bytes) {
  uint64_t hash = 14695981039346656037u;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211u;
  char text[32];
  std::snprintf(text, sizeof(text), "hccl_%016llx", static_cast<unsigned long long>(hash));
  return text;
}

void* create(const isthmus_unique_id& id, uint32_t size, uint32_t rank) {
  auto made = std::make_shared<Comm>();
  made->rank = static_cast<int32_t>(rank);
  made->size = static_cast<int32_t>(size);
  made->name = name_of({id.bytes, sizeof(id.bytes)});
  isthmus_comm_options options{};
  options.struct_size = sizeof(options);
  options.rank = made->rank;
  options.world_size = made->size;
  options.timeout_ms = milliseconds_of("HCCL_EXEC_TIMEOUT", kTimeoutSeconds);
  options.name = made->name.c_str();
  check(chip().device_get(&made->device));
  check(chip().comm_create(&id, &options, &made->comm));
  isthmus_ascend_set_watch(failure_of);
  return comms().add(std::move(made));
}

isthmus_stream queue_of(void* stream) {
  isthmus_stream queue = nullptr;
  int device = 0;
  if (isthmus_ascend_queue(stream, &queue, &device) != 0)
    throw Failure{kInvalidParameter, "the stream does not exist; it may have been destroyed"};
  return queue;
}

}  // namespace isthmus::ascend::hccl

using namespace isthmus::ascend::hccl;

// info: 4108 bytes, which the application passes to the other ranks.
ISTHMUS_ASCEND_EXPORT int HcclGetRootInfo(void* info) {
  return call("HcclGetRootInfo", [&] {
    require_not_null(info, "root info");
    isthmus_unique_id id;
    check(chip().comm_unique_id(&id));
    std::memset(info, 0, kRootInfoBytes);
    std::memcpy(info, id.bytes, sizeof(id.bytes));
  });
}

ISTHMUS_ASCEND_EXPORT int HcclCommInitRootInfo(uint32_t size, const void* info, uint32_t rank, void** comm) {
  return call("HcclCommInitRootInfo", [&] { create_from_root_info(size, info, rank, comm); });
}

// The configuration tunes the vendor's links.
ISTHMUS_ASCEND_EXPORT int HcclCommInitRootInfoConfig(uint32_t size, const void* info, uint32_t rank,
                                                     const void*, void** comm) {
  return call("HcclCommInitRootInfoConfig", [&] { create_from_root_info(size, info, rank, comm); });
}

// Communicators of all devices of one process, rank i on devices[i].
ISTHMUS_ASCEND_EXPORT int HcclCommInitAll(uint32_t size, const int32_t* devices, void** result) {
  return call("HcclCommInitAll", [&] {
    require_not_null(devices, "devices");
    require_not_null(result, "comms");
    int32_t count = 0;
    check(chip().device_count(&count));
    if (size == 0 || size > static_cast<uint32_t>(count))
      throw Failure{kInvalidParameter,
                    std::to_string(size) + " devices; " + std::to_string(count) + " available"};
    isthmus_unique_id id;
    check(chip().comm_unique_id(&id));
    std::vector<Failure> failures(size, Failure{kSuccess, {}});
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          check(chip().device_set(devices[rank]));
          result[rank] = create(id, size, rank);
        } catch (const Failure& failure) {
          failures[rank] = failure;
        }
      });
    }
    for (auto& thread : threads) thread.join();
    for (const Failure& failure : failures)
      if (failure.code != kSuccess) throw failure;
  });
}

ISTHMUS_ASCEND_EXPORT int HcclCommDestroy(void* comm) {
  return call("HcclCommDestroy", [&] {
    const auto found = comms().remove(comm);
    if (found == nullptr)
      throw Failure{kInvalidParameter, "the communicator does not exist; it may have been destroyed"};
    check(chip().comm_destroy(found->comm));
  });
}

// name: 128 bytes.
ISTHMUS_ASCEND_EXPORT int HcclGetCommName(void* comm, char* name) {
  return call("HcclGetCommName", [&] {
    require_not_null(name, "name");
    std::snprintf(name, kNameBytes, "%s", comm_of(comm)->name.c_str());
  });
}

// Returns the communicator of this name on the calling thread's device, for libopapi.so.
ISTHMUS_ASCEND_EXPORT int isthmus_ascend_comm(const char* name, void** handle, int64_t* size, int64_t* rank) {
  return call("isthmus_ascend_comm", [&] {
    require_not_null(name, "name");
    require_not_null(handle, "handle");
    require_not_null(size, "size");
    require_not_null(rank, "rank");
    int32_t device = 0;
    check(chip().device_get(&device));
    for (const auto& [found, comm] : comms().all()) {
      if (comm->name != name || comm->device != device) continue;
      *handle = found;
      *size = comm->size;
      *rank = comm->rank;
      return;
    }
    throw Failure{kInvalidParameter, std::string("no communicator is named ") + name};
  });
}

ISTHMUS_ASCEND_EXPORT int HcclGetRankSize(void* comm, uint32_t* size) {
  return call("HcclGetRankSize", [&] {
    require_not_null(size, "size");
    *size = static_cast<uint32_t>(comm_of(comm)->size);
  });
}

ISTHMUS_ASCEND_EXPORT int HcclGetRankId(void* comm, uint32_t* rank) {
  return call("HcclGetRankId", [&] {
    require_not_null(rank, "rank");
    *rank = static_cast<uint32_t>(comm_of(comm)->rank);
  });
}

ISTHMUS_ASCEND_EXPORT int HcclGetCommAsyncError(void* comm, int* error) {
  return call("HcclGetCommAsyncError", [&] {
    require_not_null(error, "error");
    *error = code_of(chip().comm_error(comm_of(comm)->comm));
    if (*error != kSuccess) isthmus_ascend_report(*error, "HcclGetCommAsyncError", chip().last_error());
  });
}

ISTHMUS_ASCEND_EXPORT const char* HcclGetErrorString(int code) {
  switch (code) {
    case kSuccess:
      return "no error";
    case kInvalidParameter:
      return "invalid parameter";
    case kNullPointer:
      return "null pointer";
    case kUnsupported:
      return "not supported on the host chip";
    case kTimeout:
      return "timed out waiting for other ranks";
    case kLinkDown:
      return "a link is down";
    case kRemoteFailure:
      return "a rank of the communicator is lost";
    case kOutOfMemory:
      return "out of memory";
    default:
      return "internal error";
  }
}

// No field of a communicator's configuration is read.
ISTHMUS_ASCEND_EXPORT uint32_t HcclGetCommConfigCapability() { return 0; }

// Settings of determinism; the host chip's collectives are deterministic.
ISTHMUS_ASCEND_EXPORT int HcclSetConfig(int, int64_t) { return kSuccess; }
