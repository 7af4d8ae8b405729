// Id created by one rank and passed to the others, which locates the communicator's memory file.
#pragma once

#include <memory>

#include "drivers/host/collectives/control.h"

namespace isthmus::host {

// Creates the file; it stays open in this process until close_id().
isthmus_unique_id make_id();
// Throws Failure: ISTHMUS_INVALID_ARGUMENT if it is not an id, ISTHMUS_UNSUPPORTED if it was created on
// another machine.
void require_reachable(const isthmus_unique_id& id);
// Throws these failures too, and ISTHMUS_PEER_LOST if the id is stale.
std::shared_ptr<Control> open_id(const isthmus_unique_id& id, int32_t world_size);
// Call it when all ranks have opened the file, or never will. No effect in other processes than the
// creator's.
void close_id(const isthmus_unique_id& id) noexcept;

}  // namespace isthmus::host
