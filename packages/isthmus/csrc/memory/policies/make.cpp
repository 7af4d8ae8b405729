#include <c10/util/Exception.h>

#include <algorithm>

#include "memory/policies/best_fit.h"
#include "memory/policies/buckets.h"
#include "memory/policies/lifetime.h"
#include "memory/policies/planned.h"
#include "memory/policies/raw.h"
#include "memory/policies/torch.h"

namespace isthmus::memory {
namespace {

template <typename Kind>
std::unique_ptr<Policy> make(const PolicyContext& context) {
  return std::make_unique<Kind>(context);
}

struct Entry {
  const char* name;
  std::unique_ptr<Policy> (*make)(const PolicyContext&);
};

constexpr Entry kPolicies[] = {
    {"planned", &make<PlannedPolicy>}, {"lifetime", &make<LifetimePolicy>}, {"torch", &make<TorchPolicy>},
    {"bf", &make<BestFitPolicy>},      {"bs", &make<BucketPolicy>},         {"raw", &make<RawPolicy>},
};

const Entry& entry(const std::string& name, const std::string& where) {
  const auto* const found = std::find_if(std::begin(kPolicies), std::end(kPolicies),
                                         [&name](const Entry& each) { return name == each.name; });
  if (found != std::end(kPolicies)) return *found;
  std::string names;
  for (const Entry& each : kPolicies) names += (names.empty() ? "" : ", ") + std::string(each.name);
  TORCH_CHECK_VALUE(false, where, "unknown allocator '", name, "'; expected one of ", names);
}

}  // namespace

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const Entry& each : kPolicies) names.emplace_back(each.name);
  return names;
}

void check_policy_name(const std::string& name, const std::string& where) { entry(name, where); }

std::unique_ptr<Policy> make_policy(const std::string& name, const PolicyContext& context) {
  return entry(name, "").make(context);
}

}  // namespace isthmus::memory
