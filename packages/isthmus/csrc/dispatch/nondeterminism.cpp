#include "dispatch/nondeterminism.h"

#include <ATen/Context.h>

#include <atomic>

namespace isthmus {
namespace {

std::atomic<const Alerts*> current{nullptr};

}  // namespace

void set_alerts(Alerts alerts) {
  // The former ones are never freed: another thread may read them.
  current.store(alerts.empty() ? nullptr : new Alerts(std::move(alerts)), std::memory_order_release);
}

bool has_alerts() noexcept { return current.load(std::memory_order_relaxed) != nullptr; }

void alert_if_nondeterministic(const std::string& name, const c10::OperatorHandle& op,
                               const torch::jit::Stack& stack) {
  const Alerts* const alerts = current.load(std::memory_order_acquire);
  if (alerts == nullptr || !at::globalContext().deterministicAlgorithms()) return;
  const auto found = alerts->find(name);
  if (found == alerts->end()) return;
  if (const std::string caller = found->second(op, stack); !caller.empty())
    at::globalContext().alertNotDeterministic(caller);
}

}  // namespace isthmus
