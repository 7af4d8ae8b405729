// One thread of the process looks at what has been enqueued: it ends operations that have failed or that take
// longer than their timeout, and says which ranks are missing.
#pragma once

#include <c10/util/intrusive_ptr.h>

namespace isthmus {

class DriverWork;

namespace watchdog {

// Until it has ended.
void watch(c10::intrusive_ptr<DriverWork> work);

// Looks now: what the flight recorder says of the works is up to date then. Reports what has failed.
void look();

// The same, and reports nothing.
void poll();

}  // namespace watchdog
}  // namespace isthmus
