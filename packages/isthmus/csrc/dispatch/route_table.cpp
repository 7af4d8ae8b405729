#include "dispatch/route_table.h"

#include <mutex>

#include "dispatch/operator_library.h"

namespace isthmus {
namespace {

using Rows = std::map<std::string, std::pair<Route, std::string>>;

struct Notes {
  std::mutex mutex;
  Rows rows;
};

Notes& notes() {
  static Notes& instance = *new Notes;
  return instance;
}

// The route of an overload that is not registered here.
std::pair<Route, std::string> unregistered_route(const c10::OperatorHandle& op) {
  if (has_composite(op)) return {Route::kDecomposition, "composite of PyTorch"};
  for (const auto key : {c10::DispatchKey::CUDA, c10::DispatchKey::CPU, c10::DispatchKey::SparseCPU,
                         c10::DispatchKey::SparseCsrCPU, c10::DispatchKey::QuantizedCPU,
                         c10::DispatchKey::NestedTensorCPU, c10::DispatchKey::MkldnnCPU})
    if (op.hasKernelForDispatchKey(key)) return {Route::kNone, std::string("only for ") + c10::toString(key)};
  return {Route::kNone, "no kernel that a chip can use"};
}

}  // namespace

bool has_composite(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
}

void note_route(const std::string& name, Route route, const std::string& reason) {
  std::lock_guard<std::mutex> lock(notes().mutex);
  notes().rows[name] = {route, reason};
}

std::map<std::string, std::pair<Route, std::string>> all_routes() {
  Rows ours;
  for (const auto& [name, route] : counted_overloads()) ours[name] = {route, "registered"};
  {
    std::lock_guard<std::mutex> lock(notes().mutex);
    for (const auto& [name, note] : notes().rows) ours[name] = note;
  }
  Rows routes;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto known = ours.find(full_name(name));
    if (known == ours.end() && name.name.rfind("aten::", 0) != 0) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (op) routes[full_name(name)] = known != ours.end() ? known->second : unregistered_route(*op);
  }
  return routes;
}

}  // namespace isthmus
