// isthmus._C: what isthmus.chip calls.
#include <torch/csrc/utils/pybind.h>

#include <algorithm>

#include "collectives/bindings.h"
#include "core/generator.h"
#include "core/runtime.h"
#include "core/stream_bindings.h"
#include "core/telemetry.h"
#include "dispatch/host_alias.h"
#include "dispatch/operator_library.h"
#include "dispatch/python_decomposition.h"
#include "dispatch/registration.h"
#include "dispatch/routes.h"
#include "dispatch/sync_debug.h"
#include "memory/bindings.h"
#include "memory/memory.h"

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

py::dict dispatch_statistics() {
  const DispatchStats stats = dispatch_stats();
  py::dict operators, calls;
  std::map<std::string, int64_t> by_route;
  for (const auto& [name, entry] : stats.operators) {
    Route most = entry.begin()->first;
    int64_t total = 0;
    for (const auto& [route, count] : entry) {
      by_route[route_name(route)] += count;
      total += count;
      if (count > entry.at(most)) most = route;
    }
    py::dict row;
    row["route"] = route_name(most);
    row["calls"] = total;
    operators[name.c_str()] = row;
  }
  for (const auto& [route, count] : by_route) calls[route.c_str()] = count;
  py::dict result;
  result["operators"] = operators;
  result["calls"] = calls;
  result["fallback_bytes"] = stats.fallback_bytes;
  result["adopted_copy_bytes"] = stats.adopted_copy_bytes;
  result["kernel_copy_bytes"] = stats.kernel_copy_bytes;
  result["set_device"] = set_device_calls();
  return result;
}

py::dict routes() {
  py::dict result;
  for (const auto& [name, route] : all_routes())
    result[name.c_str()] = py::make_tuple(route_name(route.first), route.second);
  return result;
}

void bind_device(py::module_& m) {
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
  m.def("device_count", [] { return static_cast<int>(device_count()); }, Release());
  m.def("device_error", [] { return device_error(); });
  m.def("current_device", [] { return static_cast<int>(current_device()); });
  m.def("set_device", [](int device) {
    // An index that the narrower type cannot hold must not come out as another device.
    set_current_device(static_cast<c10::DeviceIndex>(std::clamp(device, -1, kMaxDevices)));
  });
  m.def("exchange_device",
        [](int device) { return static_cast<int>(exchange_device(static_cast<c10::DeviceIndex>(device))); });
  m.def("device_properties",
        [](int device) { return device_properties(static_cast<c10::DeviceIndex>(device)); });
  m.def("memory_info", [](int device) { return free_and_total(static_cast<c10::DeviceIndex>(device)); });
}

// (name, dtypes, flags, address of the function, its handle), as isthmus.drivers.libraries has them.
using EntryTuple = std::tuple<std::string, uint64_t, uint32_t, uintptr_t, uintptr_t>;

void add_operators(const std::string& library, const std::vector<EntryTuple>& operators) {
  std::vector<LibraryEntry> entries;
  for (const auto& [name, dtypes, flags, call, handle] : operators)
    entries.push_back({name, Kernel{library, dtypes, flags, reinterpret_cast<TVMFFISafeCallType>(call),
                                    reinterpret_cast<void*>(handle)}});
  add_library(library, std::move(entries));
}

void register_routes_with(bool prefer_delegate, bool fallback, const py::dict& decompositions) {
  PythonDecompositions functions;
  for (const auto& [name, function] : decompositions)
    functions.emplace(py::cast<std::string>(name),
                      python_decomposition(py::reinterpret_borrow<py::object>(function)));
  register_routes({prefer_delegate, fallback}, std::move(functions));
}

py::list choices() {
  py::list rows;
  for (const ChoiceRow& row : kernel_choices()) {
    py::dict entry;
    entry["operator"] = row.name;
    entry["dtypes"] = row.dtypes;
    entry["layout"] = row.contiguous ? "contiguous" : "strided";
    entry["library"] = row.library;
    rows.append(entry);
  }
  return rows;
}

void bind_dispatch(py::module_& m) {
  m.def("add_operators", &add_operators);
  m.def("set_operator_runtime",
        [](uintptr_t library) { set_operator_runtime(reinterpret_cast<void*>(library)); });
  m.def("register_routes", &register_routes_with);
  m.def("serve_extension", &serve_extension);
  m.def("set_fused_attention", &set_fused_attention);
  m.def("fused_attention", &fused_attention);
  m.def("kernel_choices", &choices);
  m.def("force_route", &force_route);
  m.def("set_tracing", &set_tracing);
  m.def("dispatch_stats", &dispatch_statistics);
  m.def("reset_dispatch_stats", [] {
    reset_dispatch_stats();
    reset_set_device_calls();
  });
  m.def("routes", &routes);
  m.def("set_strict", &set_strict);
  m.def("sync_debug_mode", [] { return static_cast<int>(detail::sync_debug_mode.load()); });
  m.def("set_sync_debug_mode",
        [](int mode) { detail::sync_debug_mode.store(static_cast<SyncDebugMode>(mode)); });
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def(
      "open_driver",
      [](const std::string& path, const std::string& name, const std::string& delegate) {
        open_driver(path, name, delegate);
        memory::register_allocators();
      },
      py::arg("path"), py::arg("name") = "", py::arg("delegate") = "");
  m.def("driver", &describe_driver);
  m.def("init", [] { driver(); }, Release());
  m.def("is_initialized", &driver_initialized);
  m.def("in_bad_fork", &in_bad_fork);
  m.def("default_generator",
        [](int device) { return default_generator(static_cast<c10::DeviceIndex>(device)); });
  m.def("seed_default_generators",
        [](int64_t seed) { seed_default_generators(static_cast<uint64_t>(seed)); });
  bind_device(m);
  bind_telemetry(m);
  bind_streams(m);
  bind_dispatch(m);
  bind_host_alias(m);
  bind_collectives(m);
  bind_memory(m);
}

}  // namespace isthmus
