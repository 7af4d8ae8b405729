// A callback that may free memory before an allocation fails.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <functional>

namespace isthmus::memory {

// Called with no lock held, on the thread that allocates so many bytes; returns whether it freed any, and the
// allocation is tried again. Not called for its own allocations. A new one replaces the last.
using FailureCallback = std::function<bool(c10::DeviceIndex, size_t)>;
void set_failure_callback(FailureCallback callback);
bool call_failure_callback(c10::DeviceIndex device, size_t bytes);

}  // namespace isthmus::memory
