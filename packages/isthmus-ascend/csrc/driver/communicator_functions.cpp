// Life of communicators.
#include <memory>

#include "communicator.h"
#include "parts.h"

namespace isthmus::npu {
namespace {

isthmus_status comm_id_bytes(size_t* bytes) {
  *bytes = kRootInfoBytes;
  return ISTHMUS_OK;
}

isthmus_status comm_unique_id(isthmus_unique_id* id) {
  return call_on_device([&] { return ISTHMUS_HCCL(GetRootInfo, id), ISTHMUS_OK; });
}

isthmus_status comm_create(const isthmus_unique_id* id, const isthmus_comm_options* options,
                           isthmus_comm* comm) {
  return call_on_device([&] {
    require(options->rank >= 0 && options->rank < options->world_size,
            "comm_create: the rank is not in 0 to world_size - 1");
    auto made = std::make_unique<Communicator>();
    made->rank = options->rank;
    made->size = options->world_size;
    made->device = current_device();
    made->name = options->name == nullptr ? "unnamed" : options->name;
    ISTHMUS_HCCL(CommInitRootInfo, static_cast<uint32_t>(made->size), id, static_cast<uint32_t>(made->rank),
                 &made->native);
    char common[kCommNameBytes] = {};
    ISTHMUS_HCCL(GetCommName, made->native, common);
    made->common = common;
    *comm = reinterpret_cast<isthmus_comm>(made.release());
    return ISTHMUS_OK;
  });
}

// Runs the body on the communicator's device, from any thread.
template <typename Body>
isthmus_status call_on(isthmus_comm comm, Body&& body) {
  return call([&] {
    Communicator& communicator = communicator_of(comm);
    const DeviceScope scope(communicator.device);
    body(communicator);
    return ISTHMUS_OK;
  });
}

// HCCL ends outstanding work of a communicator by destroying it.
void end(Communicator& communicator) {
  if (communicator.is_aborted.exchange(true)) return;
  ISTHMUS_HCCL(CommDestroy, communicator.native);
}

isthmus_status comm_destroy(isthmus_comm comm) {
  return call_on(comm, [](Communicator& communicator) {
    const std::unique_ptr<Communicator> owned(&communicator);
    end(communicator);
  });
}

isthmus_status comm_abort(isthmus_comm comm) { return call_on(comm, end); }

isthmus_status comm_error(isthmus_comm comm) {
  return call_on(comm, [](const Communicator& communicator) {
    require_usable(communicator);
    int found = 0;
    ISTHMUS_HCCL(GetCommAsyncError, communicator.native, &found);
    check_hccl(found, ("communicator '" + communicator.name + "'").c_str());
  });
}

}  // namespace

void require_usable(const Communicator& communicator) {
  if (communicator.is_aborted)
    fail(ISTHMUS_ABORTED, "communicator '%s' was aborted; destroy it and create a new one",
         communicator.name.c_str());
}

void add_communicator_functions(isthmus_driver& table) {
  table.comm_id_bytes = comm_id_bytes;
  table.comm_unique_id = comm_unique_id;
  table.comm_create = comm_create;
  table.comm_destroy = comm_destroy;
  table.comm_abort = comm_abort;
  table.comm_error = comm_error;
}

}  // namespace isthmus::npu
