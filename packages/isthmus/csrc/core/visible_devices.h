// Numbers the devices that a process sees: some of the driver's, in an order of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "driver.h"

namespace isthmus {

// Lets the table's functions number the devices that ISTHMUS_VISIBLE_DEVICES names, and, for programs written
// for CUDA (uses_cuda_words()), CUDA_VISIBLE_DEVICES among these. The variables are read when devices are
// counted, so a program may set them until it first uses a device. Call once.
void number_visible_devices(isthmus_driver& table);

// The devices that a list as in CUDA_VISIBLE_DEVICES names among count: up to the first entry that is no
// device, none if one is there twice, and all if it has identifiers, which name the cards of another machine.
std::vector<int32_t> numbers_for_cuda(const std::string& list, int32_t count);

// The number of a device of the driver; its own where every device is visible.
int32_t visible_number(int32_t driver_device) noexcept;

}  // namespace isthmus
