// What one rank makes and hands to the others, so that they find the communicator's memory file.
#pragma once

#include <memory>

#include "drivers/host/collectives/control.h"

namespace isthmus::host {

// Makes the file, which stays open in this process until close_id().
isthmus_unique_id make_id();
// Throws Failure: ISTHMUS_INVALID_ARGUMENT if it is no id, ISTHMUS_UNSUPPORTED if it was made on another
// machine.
void require_reachable(const isthmus_unique_id& id);
// Throws the same, and ISTHMUS_PEER_LOST if it is stale.
std::shared_ptr<Control> open_id(const isthmus_unique_id& id, int32_t world_size);
// All ranks have opened it, or never will. Does nothing in a process that did not make it.
void close_id(const isthmus_unique_id& id) noexcept;

}  // namespace isthmus::host
