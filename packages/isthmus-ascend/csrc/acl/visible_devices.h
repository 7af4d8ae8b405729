// The devices that ASCEND_RT_VISIBLE_DEVICES selects.
#pragma once

#include "driver.h"

namespace isthmus::ascend {

// The driver with the selected devices only, numbered from 0; the given one if the variable is not set.
const isthmus_driver* with_visible_devices(const isthmus_driver* driver);

}  // namespace isthmus::ascend
