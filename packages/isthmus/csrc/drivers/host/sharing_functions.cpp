// Memory and events between processes.
#include <memory>

#include "device.h"
#include "error.h"
#include "event.h"
#include "parts.h"
#include "shared_event.h"
#include "sharing.h"

namespace isthmus::host {
namespace {

isthmus_status memory_export(void* pointer, isthmus_ipc_handle* handle) {
  return call([&] {
    require_not_null(handle, "memory_export", "handle");
    write_handle(memory_of(pointer, "memory_export").shared_part(pointer), handle);
    return ISTHMUS_OK;
  });
}

isthmus_status memory_import(const isthmus_ipc_handle* handle, void** pointer) {
  return call([&] {
    require_not_null(handle, "memory_import", "handle");
    require_not_null(pointer, "memory_import", "pointer");
    SharedPart part;
    const File file = open_handle(*handle, SharedPart::kMemory, &part);
    *pointer = current_device().memory().import(file.descriptor(), part.offset, part.bytes);
    return ISTHMUS_OK;
  });
}

isthmus_status memory_close(void* pointer) {
  return call([&] {
    memory_of(pointer, "memory_close").close_import(pointer);
    return ISTHMUS_OK;
  });
}

isthmus_status event_export(isthmus_event event, isthmus_ipc_handle* handle) {
  return call([&] {
    require_not_null(event, "event_export", "event");
    require_not_null(handle, "event_export", "handle");
    const SharedEvent* shared = reinterpret_cast<Event*>(event)->shared();
    if (shared == nullptr) {
      fail(ISTHMUS_INVALID_ARGUMENT,
           "event_export: the event is not shared; create it with ISTHMUS_EVENT_SHARED");
    }
    shared->write_handle(handle);
    return ISTHMUS_OK;
  });
}

isthmus_status event_import(const isthmus_ipc_handle* handle, isthmus_event* event) {
  return call([&] {
    require_not_null(handle, "event_import", "handle");
    require_not_null(event, "event_import", "event");
    SharedPart part;
    auto shared = std::make_shared<SharedEvent>(open_handle(*handle, SharedPart::kEvent, &part));
    *event = reinterpret_cast<isthmus_event>(new Event(std::move(shared)));
    return ISTHMUS_OK;
  });
}

}  // namespace

void add_sharing_functions(isthmus_driver& table) {
  table.memory_export = memory_export;
  table.memory_import = memory_import;
  table.memory_close = memory_close;
  table.event_export = event_export;
  table.event_import = event_import;
}

}  // namespace isthmus::host
