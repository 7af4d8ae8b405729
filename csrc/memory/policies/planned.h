// "planned", the default.
#pragma once

#include "memory/policies/tree.h"

namespace isthmus::memory {

class PlannedPolicy final : public TreePolicy {
 public:
  explicit PlannedPolicy(const PolicyContext& context) : TreePolicy(context, /*with_bins=*/true) {}
};

}  // namespace isthmus::memory
