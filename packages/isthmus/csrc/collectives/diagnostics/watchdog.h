// A thread of the process that watches over enqueued operations: it ends those that have failed or exceed
// their timeout, and reports which ranks are missing.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <string>

#include "collectives/diagnostics/failure_report.h"
#include "collectives/diagnostics/waits.h"

namespace isthmus {

class DriverWork;
struct CommunicatorFailure;

namespace watchdog {

// Watches over the work until it has ended.
void watch(c10::intrusive_ptr<DriverWork> work);

// Checks all works now, and reports those that have failed.
void check_all();

// The outstanding operations of the process. After a timeout, for a minute, those of that time: the end of
// the operation that timed out lets others proceed, and the other ranks still ask where this one waited.
Waits waits();
// The waits now, which waits() then returns for a minute.
Waits keep_waits();
// Adds an operation that the host waits in to the outstanding ones, until end_wait() for its group.
void begin_wait(Wait wait);
void end_wait(const std::string& group) noexcept;

// Updates the state of all works in the flight recorder, and reports nothing.
void poll();

// The failure of an operation that the driver reports.
Failure failure(std::string operation, const CommunicatorFailure& cause, const std::string& error);

}  // namespace watchdog
}  // namespace isthmus
