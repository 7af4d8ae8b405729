// Communicators by their handles.
#pragma once

#include <memory>

#include "driver.h"

namespace isthmus::host {

class Communicator;

// Throws Failure unless the handle is a communicator that was not destroyed.
std::shared_ptr<Communicator> communicator_of(isthmus_comm handle, const char* function);

}  // namespace isthmus::host
