// A communicator of HCCL.
#pragma once

#include <atomic>
#include <string>

#include "driver.h"
#include "hccl.h"

namespace isthmus::npu {

struct Communicator {
  void* native = nullptr;
  int32_t rank = 0, size = 1, device = 0;
  std::string name;    // in the caller's messages
  std::string common;  // the vendor's, the same on all ranks
  std::atomic<bool> is_aborted{false};
};

// Fails with ISTHMUS_ABORTED.
void require_usable(const Communicator& communicator);

inline Communicator& communicator_of(isthmus_comm handle) {
  require(handle != nullptr, "the communicator is null");
  return *reinterpret_cast<Communicator*>(handle);
}

}  // namespace isthmus::npu
