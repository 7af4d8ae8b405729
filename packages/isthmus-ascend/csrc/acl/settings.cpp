// Settings that have no counterpart on the host chip: accepted and, where they can be read, kept.
#include <unistd.h>

#include <atomic>
#include <map>
#include <utility>

#include "context.h"
#include "faults.h"

namespace isthmus::ascend {
namespace {

// Values of aclSysParamOpt, by number.
struct Parameters {
  std::mutex mutex;
  std::map<int, int64_t> values;
};

Parameters& parameters() {
  static Parameters* const parameters = new Parameters;
  return *parameters;
}

void set_parameter(int option, int64_t value) {
  const std::lock_guard<std::mutex> lock(parameters().mutex);
  parameters().values[option] = value;
}

}  // namespace
}  // namespace isthmus::ascend

using namespace isthmus::ascend;

ISTHMUS_ASCEND_EXPORT int aclrtSetSysParamOpt(int option, int64_t value) {
  return call("aclrtSetSysParamOpt", [&] { set_parameter(option, value); });
}

ISTHMUS_ASCEND_EXPORT int aclrtCtxSetSysParamOpt(int option, int64_t value) {
  return call("aclrtCtxSetSysParamOpt", [&] { set_parameter(option, value); });
}

ISTHMUS_ASCEND_EXPORT int aclrtGetSysParamOpt(int option, int64_t* value) {
  return call("aclrtGetSysParamOpt", [&] {
    require_not_null(value, "value");
    const std::lock_guard<std::mutex> lock(parameters().mutex);
    *value = parameters().values[option];
  });
}

// mode: 0 saturation, 1 infinities. The host chip computes with infinities.
ISTHMUS_ASCEND_EXPORT int aclrtSetDeviceSatMode(int mode) {
  return call("aclrtSetDeviceSatMode", [&] {
    if (mode != 0 && mode != 1)
      fail(kInvalidParameter, "mode %d; pass 0 (saturation) or 1 (infinities)", mode);
  });
}

// Seconds; waits of the host chip's streams have no limit.
ISTHMUS_ASCEND_EXPORT int aclrtSetOpWaitTimeout(uint32_t) { return kSuccess; }

// Limits operators that an injected fault stops; others have no limit.
ISTHMUS_ASCEND_EXPORT int aclrtSetOpExecuteTimeOut(uint32_t seconds) {
  return call("aclrtSetOpExecuteTimeOut", [&] { set_operator_limit(uint64_t{seconds} * 1000 * 1000); });
}

ISTHMUS_ASCEND_EXPORT int aclrtSetOpExecuteTimeOutV2(uint64_t microseconds, uint64_t* actual) {
  return call("aclrtSetOpExecuteTimeOutV2", [&] {
    require_not_null(actual, "actualTimeout");
    set_operator_limit(microseconds);
    *actual = microseconds;
  });
}

ISTHMUS_ASCEND_EXPORT int aclrtDeviceGetBareTgid(int32_t* process) {
  return call("aclrtDeviceGetBareTgid", [&] {
    require_not_null(process, "process");
    *process = getpid();
  });
}

// Dumps of operators' inputs and outputs are not written.
ISTHMUS_ASCEND_EXPORT int aclmdlInitDump() { return kSuccess; }
ISTHMUS_ASCEND_EXPORT int aclmdlSetDump(const char*) { return kSuccess; }
ISTHMUS_ASCEND_EXPORT int aclmdlFinalizeDump() { return kSuccess; }

// Log of the application; level: 0 debug, 1 info, 2 warning, 3 error.
ISTHMUS_ASCEND_EXPORT void aclAppLog(int, const char*, const char*, uint32_t, const char*, ...) {}
