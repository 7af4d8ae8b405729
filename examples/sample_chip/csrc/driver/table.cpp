// The only exported symbol: the table of driver.h. Optional functions not set here are absent.
#define ISTHMUS_DRIVER_IMPLEMENTATION
#include "runtime.h"

namespace sample {
namespace {

constexpr int32_t kDlpackExtension = 12;  // kDLExtDev

isthmus_driver make_table() {
  isthmus_driver table{};
  table.struct_size = sizeof(table);
  table.version = ISTHMUS_DRIVER_VERSION;
  table.name = "sample";
  table.description = "Sample chip: two devices in software, from a package of its own";
  table.delegate = ISTHMUS_DELEGATE_NONE;
  table.dlpack_device = kDlpackExtension;
  add_device_functions(table);
  add_memory_functions(table);
  add_copy_functions(table);
  add_stream_functions(table);
  add_event_functions(table);
  return table;
}

}  // namespace
}  // namespace sample

extern "C" const isthmus_driver* isthmus_driver_get(uint32_t core_version) {
  if (core_version >> 16 != ISTHMUS_DRIVER_VERSION_MAJOR) return nullptr;
  static const isthmus_driver table = sample::make_table();
  return &table;
}
