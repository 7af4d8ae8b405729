// The driver and its devices in isthmus._C.
#include <torch/csrc/utils/pybind.h>

#include <algorithm>

#include "bindings/bindings.h"
#include "core/cuda_answers.h"
#include "core/runtime.h"
#include "core/visible_devices.h"

namespace py = pybind11;

namespace isthmus {
namespace {

using Release = py::call_guard<py::gil_scoped_release>;

struct Member {
  const char* name;
  size_t offset;
};

#define ISTHMUS_OPTIONAL(member) {#member, offsetof(isthmus_driver, member)}
const Member kOptional[] = {
    ISTHMUS_OPTIONAL(device_reset),
    ISTHMUS_OPTIONAL(copy_peer_async),
    ISTHMUS_OPTIONAL(stream_default),
    ISTHMUS_OPTIONAL(comm_unique_id),
    ISTHMUS_OPTIONAL(comm_split),
    ISTHMUS_OPTIONAL(all_to_all),
    ISTHMUS_OPTIONAL(all_to_all_v),
    ISTHMUS_OPTIONAL(gather),
    ISTHMUS_OPTIONAL(scatter),
    ISTHMUS_OPTIONAL(host_window),
    ISTHMUS_OPTIONAL(virtual_granularity),
    ISTHMUS_OPTIONAL(memory_export),
    ISTHMUS_OPTIONAL(stream_priority_range),
    ISTHMUS_OPTIONAL(stream_wrap),
    ISTHMUS_OPTIONAL(stream_host_function),
    ISTHMUS_OPTIONAL(activity_start),
    ISTHMUS_OPTIONAL(telemetry),
    ISTHMUS_OPTIONAL(comm_reachable),
    ISTHMUS_OPTIONAL(comm_failure),
    ISTHMUS_OPTIONAL(graph_begin),
    ISTHMUS_OPTIONAL(comm_id_bytes),
    ISTHMUS_OPTIONAL(comm_reduces),
};
#undef ISTHMUS_OPTIONAL

py::dict describe_driver() {
  const isthmus_driver* table = driver_table();
  TORCH_CHECK(table != nullptr, "no chip driver is open.");
  py::dict functions;
  for (const Member& member : kOptional)
    functions[member.name] =
        table->struct_size >= member.offset + sizeof(void*) &&
        *reinterpret_cast<void* const*>(reinterpret_cast<const char*>(table) + member.offset) != nullptr;
  py::dict result;
  result["name"] = table->name;
  result["description"] = table->description;
  result["path"] = driver_path();
  result["version"] = std::to_string(table->version >> 16) + "." + std::to_string(table->version & 0xffff);
  result["delegate"] = table->delegate == ISTHMUS_DELEGATE_CPU ? "cpu" : "";
  result["functions"] = functions;
  return result;
}

isthmus_device_properties device_properties(c10::DeviceIndex device) {
  isthmus_device_properties properties{};
  check(driver().device_properties(device, &properties), "device properties");
  return properties;
}

}  // namespace

void bind_device(py::module_& m) {
  m.def("driver", &describe_driver);
  m.def("init", [] { driver(); }, Release());
  m.def("is_initialized", &driver_initialized);
  m.def("in_bad_fork", &in_bad_fork);
  py::class_<isthmus_device_properties>(m, "DeviceProperties")
      .def_property_readonly("name", [](const isthmus_device_properties& p) { return std::string(p.name); })
      .def_property_readonly("uuid", [](const isthmus_device_properties& p) { return std::string(p.uuid); })
      .def_readonly("total_memory", &isthmus_device_properties::total_memory)
      .def_readonly("major", &isthmus_device_properties::capability_major)
      .def_readonly("minor", &isthmus_device_properties::capability_minor)
      .def_readonly("multi_processor_count", &isthmus_device_properties::multi_processor_count)
      .def_readonly("numa_node", &isthmus_device_properties::numa_node)
      .def_readonly("memory_alignment", &isthmus_device_properties::memory_alignment)
      .def_property_readonly(
          "is_integrated",
          [](const isthmus_device_properties& p) { return (p.flags & ISTHMUS_PROPERTY_INTEGRATED) != 0; })
      .def_property_readonly(
          "supports_bfloat16",
          [](const isthmus_device_properties& p) { return (p.flags & ISTHMUS_PROPERTY_BFLOAT16) != 0; })
      .def("__repr__", [](const isthmus_device_properties& p) {
        return "DeviceProperties(name='" + std::string(p.name) +
               "', total_memory=" + std::to_string(p.total_memory >> 20) +
               "MiB, major=" + std::to_string(p.capability_major) +
               ", minor=" + std::to_string(p.capability_minor) +
               ", multi_processor_count=" + std::to_string(p.multi_processor_count) + ")";
      });
  m.def("device_count", [] { return static_cast<int>(counted_devices()); }, Release());
  m.def("numbers_for_cuda", &numbers_for_cuda);
  m.def("set_cuda_words", &set_cuda_words);
  m.def("device_error", [] { return device_error(); });
  m.def("current_device", [] { return static_cast<int>(current_device()); });
  m.def("set_device", [](int device) {
    // An index too large for the narrower type must not become another device.
    set_current_device(static_cast<c10::DeviceIndex>(std::clamp(device, -1, kMaxDevices)));
  });
  m.def("exchange_device",
        [](int device) { return static_cast<int>(exchange_device(static_cast<c10::DeviceIndex>(device))); });
  m.def("device_properties",
        [](int device) { return device_properties(static_cast<c10::DeviceIndex>(device)); });
  m.def("memory_info", [](int device) { return free_and_total(static_cast<c10::DeviceIndex>(device)); });
}

}  // namespace isthmus
