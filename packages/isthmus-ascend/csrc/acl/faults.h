// Injected failures that end.
#pragma once

#include <cstdint>

namespace isthmus::ascend {

// The time after which an operator that hangs fails.
void set_operator_limit(uint64_t microseconds) noexcept;

// Lets streams that hang go on.
void end_hang() noexcept;

}  // namespace isthmus::ascend
