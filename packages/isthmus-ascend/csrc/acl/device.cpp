// The end of a device's work.
#include "context.h"
#include "failures.h"
#include "faults.h"
#include "stream_work.h"

namespace isthmus::ascend {
namespace {

void synchronize_device() {
  check(current_chip().device_synchronize());
  throw_any_failure(current_context()->device);
}

}  // namespace
}  // namespace isthmus::ascend

using namespace isthmus::ascend;

// Waits for the device's work and forgets its primary context; memory stays allocated until the process ends.
// Returns a failure that no call has returned yet.
ISTHMUS_ASCEND_EXPORT int aclrtResetDevice(int32_t device) {
  return call("aclrtResetDevice", [&] {
    require_device(device);
    if (!remove_primary_context(device)) return;
    end_hang();
    {
      const DeviceScope scope(device);
      check(chip().device_synchronize());
    }
    const std::shared_ptr<void> forgotten(nullptr, [&](void*) { reset_failures(device); });
    throw_any_failure(device);
  });
}

// Work has ended when the call returns; streams that stopped at a failure run again. milliseconds: limit of
// the wait, 0 for none.
ISTHMUS_ASCEND_EXPORT int aclrtDeviceTaskAbort(int32_t device, uint32_t milliseconds) {
  return call("aclrtDeviceTaskAbort", [&] {
    require_device(device);
    end_hang();
    if (milliseconds != 0) wait_for_streams(device, static_cast<int32_t>(milliseconds));
    const DeviceScope scope(device);
    check(chip().device_synchronize());
    reset_failures(device);
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtSynchronizeDevice() {
  return call("aclrtSynchronizeDevice", [] { synchronize_device(); });
}

// milliseconds: -1 waits without a limit.
ISTHMUS_ASCEND_EXPORT int aclrtSynchronizeDeviceWithTimeout(int32_t milliseconds) {
  return call("aclrtSynchronizeDeviceWithTimeout", [&] {
    const int32_t device = current_context()->device;
    if (milliseconds >= 0) wait_for_streams(device, milliseconds);
    synchronize_device();
  });
}
