// The one exported symbol: the host chip's table, with the delegate or without.
#include "config.h"
#include "parts.h"

namespace isthmus::host {
namespace {

constexpr int32_t kDlpackCpu = 1;         // kDLCPU
constexpr int32_t kDlpackExtension = 12;  // kDLExtDev

isthmus_driver make_table(bool delegate) {
  isthmus_driver table{};
  table.struct_size = sizeof(table);
  table.version = ISTHMUS_DRIVER_VERSION;
  table.name = "host";
  table.description = "Isthmus host chip: CPU threads and memory behind a device's interface";
  table.delegate = delegate ? ISTHMUS_DELEGATE_CPU : ISTHMUS_DELEGATE_NONE;
  table.dlpack_device = delegate ? kDlpackCpu : kDlpackExtension;
  add_device_functions(table);
  add_memory_functions(table);
  if (delegate) add_host_window(table);
  add_copy_functions(table);
  add_stream_functions(table);
  add_event_functions(table);
  add_communicator_functions(table);
  add_collective_functions(table);
  add_sharing_functions(table);
  add_activity_functions(table);
  add_telemetry_functions(table);
  add_graph_functions(table);
  return table;
}

}  // namespace
}  // namespace isthmus::host

extern "C" __attribute__((visibility("default"))) const isthmus_driver* isthmus_driver_get(
    uint32_t core_version) {
  if (core_version >> 16 != ISTHMUS_DRIVER_VERSION_MAJOR) return nullptr;
  static const isthmus_driver table = isthmus::host::make_table(isthmus::host::delegate_enabled());
  return &table;
}
