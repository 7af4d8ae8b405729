// Rendezvous of the ranks of one machine when the application passes no root info.
#pragma once

#include <cstdint>
#include <string>

#include "driver.h"

namespace isthmus::ascend::hccl {

// The id of a new communicator, created by rank 0 and sent to the ranks that ask under the same name. Waits
// for all ranks, for at most the timeout. Throws Failure, on all ranks with the same message.
isthmus_unique_id agree_on_id(const std::string& name, uint32_t rank, uint32_t size, int64_t timeout_ms);

}  // namespace isthmus::ascend::hccl
