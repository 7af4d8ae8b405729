// Alerts of torch.use_deterministic_algorithms on behalf of another device.
//
// The chip's own kernels may be deterministic. A program written for a device whose kernels are not expects
// that device's alerts; whoever runs such a program sets them here.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <functional>
#include <string>
#include <unordered_map>

namespace isthmus {

// The name under which a call, whose arguments are on the stack, is reported; "" if it is deterministic.
using Alert = std::function<std::string(const c10::OperatorHandle&, const torch::jit::Stack&)>;
// The keys are full names of overloads.
using Alerts = std::unordered_map<std::string, Alert>;

// Replaces the alerts set before; empty: none.
void set_alerts(Alerts alerts);

// Whether any are set.
bool has_alerts() noexcept;

// Raises, or warns, if the overload has an alert for this call and deterministic algorithms are on.
void alert_if_nondeterministic(const std::string& name, const c10::OperatorHandle& op,
                               const torch::jit::Stack& stack);

}  // namespace isthmus
