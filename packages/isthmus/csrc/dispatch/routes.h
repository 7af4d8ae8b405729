// Decides the route of an operator's overload, call by call, in the order of preference.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dispatch/compute_dtype.h"
#include "dispatch/cpu_route.h"
#include "dispatch/kernel_route.h"
#include "dispatch/modes.h"
#include "dispatch/statistics.h"

namespace isthmus {

// Replaces the arguments on the stack by the results; returns false if it does not serve these arguments.
using Decomposition = std::function<bool(const c10::OperatorHandle&, torch::jit::Stack*)>;

// A CPU kernel that takes some arguments only, and what serves the others.
struct PartialKernel {
  bool (*takes)(c10::ArrayRef<c10::IValue> arguments);
  Decomposition otherwise;
};

class Overload : public c10::OperatorKernel {
 public:
  // The routes that the overload has; absent ones are null.
  struct Routes {
    std::unique_ptr<KernelRoute> kernel;
    Decomposition decomposition;
    bool cpu = false;                        // it has a CPU kernel
    bool delegate = false;                   // whether it may run on the chip's memory
    bool fallback = false;                   // or on copies of it
    const PartialKernel* partial = nullptr;  // null: the CPU kernel takes any arguments
    std::unique_ptr<Widening> widening;      // before the CPU kernel
    Decomposition batch_invariant;           // ahead of every route in that mode; null: rows never vary
    bool prefer_delegate = false;
    std::string reason;  // reason for the first route, for all_routes()
  };

  Overload(const c10::OperatorHandle& op, Routes routes);

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

  // Takes only the given route; no route restores the order of preference. Returns false if the overload
  // lacks it.
  bool force(std::optional<Route> route);
  // Notes the route that calls take first now, for all_routes().
  void note_first_route() const;
  const KernelRoute* kernel() const { return routes_.kernel.get(); }
  const std::string& name() const { return name_; }

 protected:
  // Whether a call goes to the delegate route, whatever its arguments and the modes in effect.
  bool is_delegated() const noexcept {
    return delegated_.load(std::memory_order_relaxed) && C10_LIKELY(!is_batch_invariant());
  }

  void count(Route route) {
    OperatorCalls* calls = calls_[static_cast<size_t>(route)].load(std::memory_order_acquire);
    (C10_LIKELY(calls != nullptr) ? *calls : first_call(route)).count();
  }

  // Dtypes that the CPU kernel gets as wider ones.
  uint64_t widened_dtypes() const noexcept { return routes_.widening ? routes_.widening->dtypes() : 0; }

  // Positions of the arguments that the operator writes.
  const std::vector<bool>& written() const { return cpu_->written(); }

 private:
  bool has(Route route) const;
  bool is_batch_invariant() const noexcept {
    return C10_UNLIKELY(batch_invariant()) && routes_.batch_invariant &&
           forced_.load(std::memory_order_relaxed) == Route::kNone;
  }
  bool take(Route route, const c10::OperatorHandle& op, torch::jit::Stack* stack);
  void call_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack, Mapping::Kind kind);
  bool take_cpu(Route route, const c10::OperatorHandle& op, torch::jit::Stack* stack);
  bool decompose(const Decomposition& decomposition, const c10::OperatorHandle& op, torch::jit::Stack* stack);
  OperatorCalls& first_call(Route route);
  void note(Route route, const std::string& reason) const;
  void choose(Route forced);
  [[noreturn]] void refuse(std::optional<Route> forced, c10::ArrayRef<c10::IValue> arguments);

  static constexpr size_t kRoutes = static_cast<size_t>(Route::kNone) + 1;

  const std::string name_;
  const bool reads_data_;
  Routes routes_;
  std::unique_ptr<CpuRoute> cpu_;
  std::vector<Route> order_;
  std::atomic<Route> forced_{Route::kNone};
  std::atomic<bool> delegated_{false};
  std::array<std::atomic<OperatorCalls*>, kRoutes> calls_{};
};

}  // namespace isthmus
