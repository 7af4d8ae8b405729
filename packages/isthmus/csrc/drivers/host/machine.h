// Memory of the machine, or of the control group that limits this process.
#pragma once

#include <cstdint>

namespace isthmus::host {

// Bytes that processes can have in all; the largest number where the system does not say.
uint64_t machine_memory();

// Bytes that they can still have without swapping.
uint64_t available_memory();

}  // namespace isthmus::host
