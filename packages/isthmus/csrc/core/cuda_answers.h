// Answers about the device that programs written for CUDA expect.
#pragma once

#include <c10/core/Device.h>

namespace isthmus {

// device_count(); in a process forked after the first use, where that is 0, the number that the parent
// counted.
c10::DeviceIndex counted_devices() noexcept;

// Whether errors in which programs look for CUDA's words (out of memory, fork) begin with them.
bool uses_cuda_words() noexcept;
void set_cuda_words(bool uses) noexcept;

}  // namespace isthmus
