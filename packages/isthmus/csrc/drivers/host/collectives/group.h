// Submits a request to its stream: at once, or at the end of the thread's group.
#pragma once

#include "drivers/host/collectives/request.h"

namespace isthmus::host {

void enqueue(Request request);
void start_group() noexcept;
// Throws Failure if no group was started.
void end_group();
bool in_group() noexcept;

}  // namespace isthmus::host
