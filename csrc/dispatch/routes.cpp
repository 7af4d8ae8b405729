#include "dispatch/routes.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdlib>
#include <mutex>

#include "dispatch/operator_library.h"

namespace isthmus {
namespace {

struct State {
  std::mutex mutex;
  std::map<std::pair<std::string, Route>, OperatorCalls*> operators;
  std::map<std::string, std::pair<Route, std::string>> notes;  // by note_route()
  std::atomic<int64_t> fallback_bytes{0};
  std::atomic<int64_t> adopted_copy_bytes{0};
  std::atomic<int64_t> kernel_copy_bytes{0};
  std::atomic<bool> strict{switched_on("ISTHMUS_STRICT")};
  std::atomic<bool> tracing{switched_on("ISTHMUS_TRACE")};

  static bool switched_on(const char* variable) {
    const char* value = std::getenv(variable);
    return value != nullptr && std::string(value) == "1";
  }
};

State& state() {
  static State& instance = *new State;
  return instance;
}

bool has_composite(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
}

// For an overload that no kernel of ours serves.
std::pair<Route, std::string> unregistered_route(const c10::OperatorHandle& op) {
  if (has_composite(op)) return {Route::kDecomposition, "composite of PyTorch"};
  for (const auto key : {c10::DispatchKey::CUDA, c10::DispatchKey::CPU, c10::DispatchKey::SparseCPU,
                         c10::DispatchKey::SparseCsrCPU, c10::DispatchKey::QuantizedCPU,
                         c10::DispatchKey::NestedTensorCPU, c10::DispatchKey::MkldnnCPU})
    if (op.hasKernelForDispatchKey(key)) return {Route::kNone, std::string("only for ") + c10::toString(key)};
  return {Route::kNone, "no kernel that a chip can use"};
}

}  // namespace

const char* route_name(Route route) noexcept {
  switch (route) {
    case Route::kNative:
      return "native";
    case Route::kKernel:
      return "kernel";
    case Route::kDelegate:
      return "delegate";
    case Route::kDecomposition:
      return "decomposition";
    case Route::kFallback:
      return "fallback";
    case Route::kNone:
      return "none";
  }
  return "none";
}

OperatorCalls& operator_calls(const std::string& name, Route route) {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  OperatorCalls*& entry = s.operators[{name, route}];
  if (entry == nullptr) {
    entry = new OperatorCalls;
    entry->name = name;
    entry->route = route;
  }
  return *entry;
}

void add_fallback_bytes(int64_t bytes) noexcept {
  state().fallback_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

void add_adopted_copy_bytes(int64_t bytes) noexcept {
  state().adopted_copy_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

void add_kernel_copy_bytes(int64_t bytes) noexcept {
  state().kernel_copy_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

DispatchStats dispatch_stats() {
  State& s = state();
  DispatchStats stats{{}, s.fallback_bytes.load(), s.adopted_copy_bytes.load(), s.kernel_copy_bytes.load()};
  std::lock_guard<std::mutex> lock(s.mutex);
  for (const auto& [key, entry] : s.operators)
    if (const int64_t calls = entry->calls.load(std::memory_order_relaxed); calls > 0)
      stats.operators[key.first][key.second] = calls;
  return stats;
}

void reset_dispatch_stats() {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  for (auto& [name, entry] : s.operators) entry->calls.store(0, std::memory_order_relaxed);
  s.fallback_bytes = 0;
  s.adopted_copy_bytes = 0;
  s.kernel_copy_bytes = 0;
}

bool strict() noexcept { return state().strict.load(std::memory_order_relaxed); }

void set_strict(bool value) noexcept { state().strict.store(value, std::memory_order_relaxed); }

bool tracing() noexcept { return state().tracing.load(std::memory_order_relaxed); }

void set_tracing(bool value) noexcept { state().tracing.store(value, std::memory_order_relaxed); }

void note_route(const std::string& name, Route route, const std::string& reason) {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  s.notes[name] = {route, reason};
}

std::map<std::string, std::pair<Route, std::string>> all_routes() {
  std::map<std::string, std::pair<Route, std::string>> ours;
  {
    State& s = state();
    std::lock_guard<std::mutex> lock(s.mutex);
    for (const auto& [key, entry] : s.operators)
      ours.emplace(key.first, std::make_pair(key.second, "registered"));
    for (const auto& [name, note] : s.notes) ours[name] = note;
  }
  std::map<std::string, std::pair<Route, std::string>> routes;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto known = ours.find(full_name(name));
    if (known == ours.end() && name.name.rfind("aten::", 0) != 0) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (op) routes[full_name(name)] = known != ours.end() ? known->second : unregistered_route(*op);
  }
  return routes;
}

}  // namespace isthmus
