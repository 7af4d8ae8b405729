#include "dispatch/routes.h"

#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <cstdio>

#include "dispatch/kernel_arguments.h"
#include "dispatch/modes.h"
#include "dispatch/nondeterminism.h"
#include "dispatch/route_table.h"
#include "dispatch/sync_debug.h"

namespace isthmus {
namespace {

// The overloads whose decompositions this thread is in.
thread_local std::vector<const Overload*> decomposing;

}  // namespace

Overload::Overload(const c10::OperatorHandle& op, Routes routes)
    : name_(full_name(op.operator_name())), reads_data_(reads_data(op)), routes_(std::move(routes)) {
  if (routes_.cpu) cpu_ = std::make_unique<CpuRoute>(op);
  order_ = {Route::kKernel, Route::kDelegate, Route::kDecomposition, Route::kFallback};
  if (routes_.prefer_delegate) std::swap(order_[0], order_[1]);
  std::erase_if(order_, [this](Route route) { return !has(route); });
  choose(Route::kNone);
  note_first_route();
}

// Takes only the forced route, or the first that serves the arguments.
void Overload::choose(Route forced) {
  const Route first = forced != Route::kNone || order_.empty() ? forced : order_.front();
  forced_.store(forced, std::memory_order_relaxed);
  delegated_.store(first == Route::kDelegate && routes_.partial == nullptr && !reads_data_,
                   std::memory_order_relaxed);
}

void Overload::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  if (C10_UNLIKELY(reads_data_)) waits(name_, *stack);
  if (C10_UNLIKELY(has_alerts()) && decomposing.empty()) alert_if_nondeterministic(name_, op, *stack);
  const auto arguments = [&] { return torch::jit::last(*stack, op.schema().arguments().size()); };
  const Route forced = forced_.load(std::memory_order_relaxed);
  if (C10_LIKELY(forced == Route::kNone)) {
    if (is_batch_invariant() && decompose(routes_.batch_invariant, op, stack)) return;
    for (const Route route : order_)
      if (take(route, op, stack)) return;
    refuse(std::nullopt, arguments());
  }
  if (!take(forced, op, stack)) refuse(forced, arguments());
}

bool Overload::has(Route route) const {
  switch (route) {
    case Route::kKernel:
      return routes_.kernel != nullptr;
    case Route::kDelegate:
      return routes_.cpu && routes_.delegate;
    case Route::kDecomposition:
      return static_cast<bool>(routes_.decomposition);
    case Route::kFallback:
      return routes_.cpu && routes_.fallback;
    default:
      return false;
  }
}

bool Overload::take(Route route, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  switch (route) {
    case Route::kDelegate:
    case Route::kFallback:
      return take_cpu(route, op, stack);
    case Route::kKernel:
      keep_backward_in_thread();
      if (!routes_.kernel->call(stack)) return false;
      count(route);
      return true;
    case Route::kDecomposition:
      return decompose(routes_.decomposition, op, stack);
    default:
      return false;
  }
}

bool Overload::take_cpu(Route route, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (C10_UNLIKELY(routes_.partial != nullptr) &&
      !routes_.partial->takes(torch::jit::last(*stack, op.schema().arguments().size())))
    return decompose(routes_.partial->otherwise, op, stack);
  count(route);
  call_cpu(op, stack, route == Route::kDelegate ? Mapping::Kind::kAlias : Mapping::Kind::kCopy);
  return true;
}

void Overload::call_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack, Mapping::Kind kind) {
  const auto call = [&] { cpu_->call(op, stack, kind); };
  if (C10_LIKELY(routes_.widening == nullptr) || !routes_.widening->serves(stack, call)) call();
}

// A decomposition that calls its own overload would recurse infinitely.
bool Overload::decompose(const Decomposition& decomposition, const c10::OperatorHandle& op,
                         torch::jit::Stack* stack) {
  if (std::find(decomposing.begin(), decomposing.end(), this) != decomposing.end()) return false;
  decomposing.push_back(this);
  const auto leave = c10::make_scope_exit([] { decomposing.pop_back(); });
  if (!decomposition(op, stack)) return false;
  count(Route::kDecomposition);
  return true;
}

OperatorCalls& Overload::first_call(Route route) {
  OperatorCalls& calls = operator_calls(name_, route);
  calls_[static_cast<size_t>(route)].store(&calls, std::memory_order_release);
  if (tracing() && route != Route::kKernel)
    std::fprintf(stderr, "isthmus: %s -> %s\n", name_.c_str(), route_name(route));
  return calls;
}

void Overload::note(Route route, const std::string& reason) const { note_route(name_, route, reason); }

bool Overload::force(std::optional<Route> route) {
  if (!route) {
    choose(Route::kNone);
    note_first_route();
    return true;
  }
  // The user may force the fallback even where the driver does not allow it.
  if (!has(*route) && !(*route == Route::kFallback && routes_.cpu)) return false;
  choose(*route);
  note_first_route();
  return true;
}

void Overload::note_first_route() const {
  if (const Route forced = forced_.load(std::memory_order_relaxed); forced != Route::kNone)
    note(forced, "forced");
  else if (is_batch_invariant())
    note(Route::kDecomposition, "rows with the same bits in every batch");
  else
    note(order_.empty() ? Route::kNone : order_.front(), routes_.reason);
}

void Overload::refuse(std::optional<Route> forced, c10::ArrayRef<c10::IValue> arguments) {
  count(Route::kNone);
  const std::string dtypes = for_dtypes(arguments);
  TORCH_CHECK_NOT_IMPLEMENTED(!forced, name_, ": the forced route ", route_name(*forced),
                              " does not serve this call", dtypes, ".");
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, name_, " has no route on driver ", driver_table()->name, dtypes, ": ",
      routes_.kernel ? "no kernel of " + routes_.kernel->libraries() + " takes these arguments"
                     : "no library has a kernel",
      routes_.cpu && !routes_.fallback ? ", and the driver allows no fallback to CPU." : ".",
      " `isthmus ops` prints the routes.");
}

}  // namespace isthmus
