// Routes by name, and the calls of each overload by route; kNone counts calls that no route served.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>

namespace isthmus {

enum class Route { kNative, kKernel, kDelegate, kDecomposition, kFallback, kNone };

const char* route_name(Route route) noexcept;

// Calls of one overload by one route. Never destroyed.
struct OperatorCalls {
  std::string name;
  Route route;
  std::atomic<int64_t> calls{0};

  void count() noexcept { calls.fetch_add(1, std::memory_order_relaxed); }
};

// The counter of an overload ("aten::add.Tensor"); made on first use.
OperatorCalls& operator_calls(const std::string& name, Route route);

// Counts the call of a kernel that is registered by hand: ISTHMUS_COUNT("aten::view", Route::kNative). The
// counter is made when the library is loaded, so that all_routes() lists it before the first call.
template <size_t N>
struct Literal {
  constexpr Literal(const char (&from)[N]) { std::copy_n(from, N, text); }
  char text[N];
};
template <Literal kName, Route kRoute>
inline OperatorCalls& counter = operator_calls(kName.text, kRoute);
#define ISTHMUS_COUNT(name, route) ::isthmus::counter<name, route>.count()

// Bytes that the fallback route copied, both ways.
void add_fallback_bytes(int64_t bytes) noexcept;
// Bytes of tensors that were made contiguous, cast or copied from the CPU because a kernel requires it.
void add_kernel_copy_bytes(int64_t bytes) noexcept;
// Bytes of results that a delegated kernel did not place in the chip's memory, so that they were copied
// there.
void add_adopted_copy_bytes(int64_t bytes) noexcept;

struct DispatchStats {
  std::map<std::string, std::map<Route, int64_t>> operators;  // calls by route, of those called at least once
  int64_t fallback_bytes;
  int64_t adopted_copy_bytes;
  int64_t kernel_copy_bytes;
};
DispatchStats dispatch_stats();
void reset_dispatch_stats();

// Every overload that has a counter, called or not, with the first of its routes.
std::map<std::string, Route> counted_overloads();

}  // namespace isthmus
