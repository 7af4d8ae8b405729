// What an address is.
#pragma once

#include "driver.h"

namespace isthmus::ascend {

// Kind and device of an address; any address is allowed.
isthmus_pointer_attributes attributes_of(const void* pointer);

}  // namespace isthmus::ascend
