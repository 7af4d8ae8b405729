// libascend_hal.so: what torch_npu asks of the driver. Version 0 has no counter of system cycles, so that
// torch_npu takes its times from the clock of the machine.
#include <cstdint>

#define ISTHMUS_ASCEND_EXPORT extern "C" __attribute__((visibility("default")))

constexpr int kUnsupported = 0xFFFE;

ISTHMUS_ASCEND_EXPORT int halGetAPIVersion(int32_t* version) {
  if (version != nullptr) *version = 0;
  return 0;
}

ISTHMUS_ASCEND_EXPORT int halGetDeviceInfo(uint32_t, int32_t, int32_t, int64_t*) { return kUnsupported; }
