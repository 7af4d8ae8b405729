// Choice of a device's allocator policy and its options.
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "memory/policy.h"

namespace isthmus::memory {

// The policy set by choose_policy(), else by ISTHMUS_ALLOCATOR: "torch", or "chip:1=torch,planned".
std::string chosen_policy(c10::DeviceIndex device);
// The options set by choose_policy(), else by ISTHMUS_ALLOC_CONF, else of PYTORCH_ALLOC_CONF (or its older
// name PYTORCH_CUDA_ALLOC_CONF).
PolicyOptions chosen_options(c10::DeviceIndex device);

}  // namespace isthmus::memory
