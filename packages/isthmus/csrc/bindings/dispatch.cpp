// Routes of operators and operator libraries in isthmus._C.
#include <torch/csrc/utils/pybind.h>

#include "bindings/bindings.h"
#include "bindings/python_decomposition.h"
#include "core/runtime.h"
#include "dispatch/forced_routes.h"
#include "dispatch/layouts/registration.h"
#include "dispatch/modes.h"
#include "dispatch/operator_library.h"
#include "dispatch/operators/register.h"
#include "dispatch/preferences.h"
#include "dispatch/registration.h"
#include "dispatch/route_table.h"
#include "dispatch/statistics.h"
#include "dispatch/sync_debug.h"
#include "dispatch/unboxed.h"

namespace py = pybind11;

namespace isthmus {
namespace {

py::dict dispatch_statistics() {
  const DispatchStats stats = dispatch_stats();
  py::dict operators, calls, refused;
  std::map<std::string, int64_t> by_route;
  for (const auto& [name, entry] : stats.operators) {
    Route most = Route::kNone;
    int64_t total = 0, largest = 0;
    for (const auto& [route, count] : entry) {
      if (route == Route::kNone) {
        refused[name.c_str()] = count;
        continue;
      }
      by_route[route_name(route)] += count;
      total += count;
      if (count > largest) most = route, largest = count;
    }
    if (total == 0) continue;
    py::dict row;
    row["route"] = route_name(most);
    row["calls"] = total;
    operators[name.c_str()] = row;
  }
  for (const auto& [route, count] : by_route) calls[route.c_str()] = count;
  py::dict result;
  result["operators"] = operators;
  result["calls"] = calls;
  result["refused"] = refused;
  result["fallback_bytes"] = stats.fallback_bytes;
  result["adopted_copy_bytes"] = stats.adopted_copy_bytes;
  result["kernel_copy_bytes"] = stats.kernel_copy_bytes;
  result["set_device"] = set_device_calls();
  return result;
}

py::dict routes() {
  finish_registration();
  py::dict result;
  for (const auto& [name, route] : all_routes())
    result[name.c_str()] = py::make_tuple(route_name(route.first), route.second);
  return result;
}

// Result of isthmus.opset.indices.rule_of().
using RuleTuple = std::tuple<std::string, int, int, bool, int, int, int, bool, int, bool, int>;
// isthmus.opset.refusals.Refusals
using RefusalsTuple =
    std::tuple<std::map<std::string, std::tuple<uint64_t, int>>, std::vector<std::string>, uint64_t>;
// (name, dtypes, flags, address of the function, its handle), as in isthmus.drivers.libraries, the rule of
// its indices, and the refusals.
using EntryTuple = std::tuple<std::string, uint64_t, uint32_t, uintptr_t, uintptr_t, std::optional<RuleTuple>,
                              std::optional<RefusalsTuple>>;

Refusals to_refusals(const RefusalsTuple& given) {
  Refusals refusals;
  for (const auto& [name, argument] : std::get<0>(given))
    refusals.arguments[name] = {std::get<0>(argument), static_cast<Overlap>(std::get<1>(argument))};
  refusals.values = std::get<1>(given);
  refusals.together = std::get<2>(given);
  return refusals;
}

void add_operators(const std::string& library, const std::vector<EntryTuple>& operators) {
  std::vector<LibraryEntry> entries;
  for (const auto& [name, dtypes, flags, call, handle, rule, refusals] : operators) {
    entries.push_back({name, Kernel{library, dtypes, flags, reinterpret_cast<TVMFFISafeCallType>(call),
                                    reinterpret_cast<void*>(handle), std::nullopt}});
    if (rule) entries.back().kernel.indices = std::make_from_tuple<IndexRule>(*rule);
    if (refusals) entries.back().kernel.refusals = to_refusals(*refusals);
  }
  add_library(library, std::move(entries));
}

// Entries of isthmus.chip.compute_dtypes.
using ComputeRules = std::map<std::string, std::tuple<std::map<at::ScalarType, at::ScalarType>, std::string,
                                                      std::vector<std::string>, std::vector<std::string>>>;

void register_routes_with(bool prefer_delegate, bool fallback, const py::dict& decompositions,
                          const ComputeRules& compute_rules, bool now) {
  PythonDecompositions functions;
  for (const auto& [name, function] : decompositions)
    functions.emplace(py::cast<std::string>(name),
                      python_decomposition(py::reinterpret_borrow<py::object>(function)));
  read_modes();
  std::map<std::string, ComputeRule> rules;
  for (const auto& [name, rule] : compute_rules) rules[name] = std::make_from_tuple<ComputeRule>(rule);
  set_compute_rules(std::move(rules));
  set_preferences({prefer_delegate, fallback});
  register_operators();
  register_first_calls();
  defer_registration([functions = std::move(functions)] {
    register_routes(functions);
    register_layouts();
  });
  if (now) finish_registration();
}

void set_python_alerts(const py::dict& functions) {
  Alerts alerts;
  for (const auto& [name, function] : functions)
    alerts.emplace(py::cast<std::string>(name), python_alert(py::reinterpret_borrow<py::object>(function)));
  set_alerts(std::move(alerts));
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

}  // namespace

void import_operators() {
  py::gil_scoped_acquire gil;
  py::module_::import("isthmus.ops");
}

void bind_dispatch(py::module_& m) {
  m.def("add_operators", &add_operators);
  m.def("set_operator_runtime",
        [](uintptr_t library) { set_operator_runtime(reinterpret_cast<void*>(library)); });
  m.def("register_routes", &register_routes_with, py::arg("prefer_delegate"), py::arg("fallback"),
        py::arg("decompositions"), py::arg("compute_rules"), py::arg("now"));
  m.def("serve_extension", [](const std::string& name) {
    finish_registration();
    return serve_extension(name);
  });
  m.def("set_fused_attention", &set_fused_attention);
  m.def("fused_attention", &fused_attention);
  m.def("set_alerts", &set_python_alerts);
  m.def("kernel_choices", &choices);
  m.def("force_route", [](const std::string& pattern, const std::string& route) {
    finish_registration();
    return force_route(pattern, route);
  });
  m.def("set_tracing", &set_tracing);
  m.def("dispatch_stats", &dispatch_statistics);
  m.def("reset_dispatch_stats", [] {
    reset_dispatch_stats();
    reset_set_device_calls();
  });
  m.def("routes", &routes);
  m.def("unboxed_overloads", &unboxed_overloads);
  m.def("set_strict", &set_strict);
  m.def("batch_invariant", &batch_invariant);
  m.def("set_batch_invariant", [](bool on) {
    finish_registration();
    if (on || batch_invariant()) set_batch_invariant_kernels(on);
    set_batch_invariant(on);
    note_first_routes();
  });
  m.def("sync_debug_mode", [] { return static_cast<int>(detail::sync_debug_mode.load()); });
  m.def("set_sync_debug_mode",
        [](int mode) { detail::sync_debug_mode.store(static_cast<SyncDebugMode>(mode)); });
}

}  // namespace isthmus
