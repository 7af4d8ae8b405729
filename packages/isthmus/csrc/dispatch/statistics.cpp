#include "dispatch/statistics.h"

#include <mutex>
#include <utility>

namespace isthmus {
namespace {

struct Totals {
  std::mutex mutex;
  std::map<std::pair<std::string, Route>, OperatorCalls*> operators;
  std::atomic<int64_t> fallback_bytes{0};
  std::atomic<int64_t> adopted_copy_bytes{0};
  std::atomic<int64_t> kernel_copy_bytes{0};
};

Totals& totals() {
  static Totals& instance = *new Totals;
  return instance;
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
  Totals& s = totals();
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
  totals().fallback_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

void add_adopted_copy_bytes(int64_t bytes) noexcept {
  totals().adopted_copy_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

void add_kernel_copy_bytes(int64_t bytes) noexcept {
  totals().kernel_copy_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

DispatchStats dispatch_stats() {
  Totals& s = totals();
  DispatchStats stats{{}, s.fallback_bytes.load(), s.adopted_copy_bytes.load(), s.kernel_copy_bytes.load()};
  std::lock_guard<std::mutex> lock(s.mutex);
  for (const auto& [key, entry] : s.operators)
    if (const int64_t calls = entry->calls.load(std::memory_order_relaxed); calls > 0)
      stats.operators[key.first][key.second] = calls;
  return stats;
}

void reset_dispatch_stats() {
  Totals& s = totals();
  std::lock_guard<std::mutex> lock(s.mutex);
  for (auto& [name, entry] : s.operators) entry->calls.store(0, std::memory_order_relaxed);
  s.fallback_bytes = 0;
  s.adopted_copy_bytes = 0;
  s.kernel_copy_bytes = 0;
}

std::map<std::string, Route> counted_overloads() {
  Totals& s = totals();
  std::lock_guard<std::mutex> lock(s.mutex);
  std::map<std::string, Route> overloads;
  for (const auto& [key, entry] : s.operators) overloads.emplace(key.first, key.second);
  return overloads;
}

}  // namespace isthmus
