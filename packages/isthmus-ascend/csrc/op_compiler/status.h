// Values of aclError.
#pragma once

#include "acl/older_call.h"

namespace isthmus::ascend {

constexpr int kSuccess = 0, kInvalidParameter = 100000, kUnsupported = 207000;

}  // namespace isthmus::ascend
