// The host chip, and what it calls itself here.
#pragma once

#include <string>

#include "driver.h"

namespace isthmus::ascend {

// The table of the host chip's driver. Throws Failure if it cannot be opened.
const isthmus_driver& driver();

// Like driver(), and initialises it.
const isthmus_driver& chip();

// Whether the process was forked from one that had the host chip initialised, where another thread may have
// held any lock.
bool is_forked() noexcept;

// Number of devices that this process sees.
int32_t device_count();

// Throws kInvalidDevice unless the device exists.
void require_device(int32_t device);

// The product's name that aclrtGetSocName() returns, and the number of its series in ascend_products.h. Both
// end the process if ISTHMUS_ASCEND_SOC is unknown.
const std::string& soc_name();
int soc_series();

}  // namespace isthmus::ascend
