#include <c10/util/Exception.h>

#include "memory/policies/best_fit.h"
#include "memory/policies/buckets.h"
#include "memory/policies/lifetime.h"
#include "memory/policies/planned.h"
#include "memory/policies/raw.h"
#include "memory/policies/torch.h"

namespace isthmus::memory {

const std::vector<std::string>& policy_names() {
  static const auto* const names =
      new std::vector<std::string>{"planned", "lifetime", "torch", "bf", "bs", "raw"};
  return *names;
}

std::unique_ptr<Policy> make_policy(const std::string& name, const PolicyContext& context) {
  if (name == "planned") return std::make_unique<PlannedPolicy>(context);
  if (name == "lifetime") return std::make_unique<LifetimePolicy>(context);
  if (name == "torch") return std::make_unique<TorchPolicy>(context);
  if (name == "bf") return std::make_unique<BestFitPolicy>(context);
  if (name == "bs") return std::make_unique<BucketPolicy>(context);
  if (name == "raw") return std::make_unique<RawPolicy>(context);
  std::string names;
  for (const std::string& each : policy_names()) names += (names.empty() ? "" : ", ") + each;
  TORCH_CHECK_VALUE(false, "no allocator is called '", name, "'; there are ", names);
}

}  // namespace isthmus::memory
