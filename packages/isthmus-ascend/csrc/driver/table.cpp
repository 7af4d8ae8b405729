// The only exported symbol: the table of driver.h over AscendCL.
#include "parts.h"

namespace isthmus::npu {
namespace {

constexpr int32_t kDlpackExtension = 12;      // kDLExtDev
constexpr uint32_t kLargeIds = 1u << 16 | 3;  // first version with comm_id_bytes()

isthmus_driver make_table(uint32_t core_version) {
  isthmus_driver table{};
  table.struct_size = sizeof(table);
  table.version = ISTHMUS_DRIVER_VERSION;
  table.name = "ascend";
  table.description = "Ascend NPUs, by AscendCL";
  table.delegate = ISTHMUS_DELEGATE_NONE;
  table.dlpack_device = kDlpackExtension;
  add_device_functions(table);
  add_memory_functions(table);
  add_copy_functions(table);
  add_stream_functions(table);
  add_event_functions(table);
  add_virtual_memory_functions(table);
  add_sharing_functions(table);
  add_graph_functions(table);
  add_telemetry_functions(table);
  if (core_version >= kLargeIds) {
    add_communicator_functions(table);
    add_collective_functions(table);
  }
  return table;
}

}  // namespace
}  // namespace isthmus::npu

extern "C" __attribute__((visibility("default"))) const isthmus_driver* isthmus_driver_get(
    uint32_t core_version) {
  if (core_version >> 16 != ISTHMUS_DRIVER_VERSION_MAJOR) return nullptr;
  static const isthmus_driver table = isthmus::npu::make_table(core_version);
  return &table;
}
