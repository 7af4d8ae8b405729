// Which of the driver's devices this process sees, and in which order.
#pragma once

#include <cstdint>

#include "driver.h"

namespace isthmus {

// Lets the table's functions number the devices that ISTHMUS_VISIBLE_DEVICES names, and, for programs written
// for CUDA (uses_cuda_words()), CUDA_VISIBLE_DEVICES among these. The variables are read when devices are
// counted, so a program may set them until it first uses a device. Call once.
void number_visible_devices(isthmus_driver& table);

// The number of a device of the driver; its own where every device is visible.
int32_t visible_number(int32_t driver_device) noexcept;

}  // namespace isthmus
