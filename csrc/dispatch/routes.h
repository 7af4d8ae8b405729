// Where each ATen call goes, and how often it went there.
#pragma once

#include <ATen/core/operator_name.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace isthmus {

enum class Route { kNative, kKernel, kDelegate, kDecomposition, kFallback, kNone };

const char* route_name(Route route) noexcept;

// Calls of one overload by one route. Lives for ever.
struct OperatorCalls {
  std::string name;
  Route route;
  std::atomic<int64_t> calls{0};

  void count() noexcept { calls.fetch_add(1, std::memory_order_relaxed); }
};

// The counter of an overload ("aten::add.Tensor"); made on first use.
OperatorCalls& operator_calls(const std::string& name, Route route);

// Counts the call of a kernel that is registered by hand: ISTHMUS_COUNT("aten::view", Route::kNative). The
// counter is made when the library is loaded, so that all_routes() knows it before the first call.
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
// Bytes of tensors that were made contiguous, cast or brought from the CPU because a kernel asks for it.
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

// Whether the fallback route raises.
bool strict() noexcept;
void set_strict(bool strict) noexcept;

// Whether new choices of a route are printed (ISTHMUS_TRACE=1).
bool tracing() noexcept;
void set_tracing(bool tracing) noexcept;

// Says what route an overload takes that has a kernel of ours, and why; all_routes() prints the last word.
void note_route(const std::string& name, Route route, const std::string& reason);

// Every ATen overload, and those of extensions that have a kernel of ours, with its route and the reason.
std::map<std::string, std::pair<Route, std::string>> all_routes();

}  // namespace isthmus
