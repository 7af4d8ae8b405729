// Operations between group_start() and group_end() of a thread.
#pragma once

#include <functional>

#include "communicator.h"

namespace isthmus::npu {

// Runs it now, or at the end of the thread's group.
void submit(const Communicator& communicator, std::function<void()> collective);
void submit(const Communicator& communicator, isthmus_stream stream, const SendReceiveItem& message);

void start_group();
void end_group();

}  // namespace isthmus::npu
