// The failures of driver_failure.h, and bytes in their messages.
#pragma once

#include <cstdint>
#include <string>

#include "driver_failure.h"

namespace isthmus::host {

using namespace isthmus::drivers;

// "2.1 GiB", "512 B".
std::string format_bytes(uint64_t bytes);

}  // namespace isthmus::host
