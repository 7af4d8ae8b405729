// libacl_op_compiler.so: the older interface of operators. Compilation at run time is off, so that
// applications take the aclnn functions. Of the older interface there is Identity, with which torch_npu
// changes between formats of the same order in memory; others are refused by name.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "ascend/acl/enqueue.h"
#include "driver.h"

#define ISTHMUS_ASCEND_EXPORT extern "C" __attribute__((visibility("default")))

extern "C" void* aclGetDataBufferAddr(const void* buffer);
extern "C" size_t aclGetDataBufferSizeV2(const void* buffer);

namespace {

constexpr int kSuccess = 0, kInvalidParameter = 100000, kUnsupported = 207000;
constexpr char kOff[] = "disable";

int refuse(const char* function, const char* operator_name) {
  char message[256];
  std::snprintf(message, sizeof(message), "operator %s of the older interface is not implemented",
                operator_name != nullptr ? operator_name : "(null)");
  return isthmus_ascend_report(kUnsupported, function, message);
}

// Every format keeps its elements first, in the order of dimensions; some have padding after them.
int identity(const char* function, const void* input, const void* output, void* stream) {
  const size_t bytes = std::min(aclGetDataBufferSizeV2(input), aclGetDataBufferSizeV2(output));
  if (bytes == 0) return kSuccess;
  isthmus_stream queue = nullptr;
  int device = 0;
  if (const int code = isthmus_ascend_queue(stream, &queue, &device)) return code;
  const isthmus_driver& chip = *isthmus_ascend_chip();
  const isthmus_status status = chip.copy_async(aclGetDataBufferAddr(output), aclGetDataBufferAddr(input),
                                                bytes, ISTHMUS_DEVICE_TO_DEVICE, queue);
  return status == ISTHMUS_OK ? kSuccess
                              : isthmus_ascend_report(kInvalidParameter, function, chip.last_error());
}

int execute(const char* function, const char* name, int inputs, const void* const input[], int outputs,
            const void* const output[], void* stream) {
  if (name != nullptr && std::strcmp(name, "Identity") == 0 && inputs == 1 && outputs == 1)
    return identity(function, input[0], output[0], stream);
  return refuse(function, name);
}

}  // namespace

ISTHMUS_ASCEND_EXPORT int aclSetCompileopt(int, const char*) { return kSuccess; }

ISTHMUS_ASCEND_EXPORT size_t aclGetCompileoptSize(int) { return sizeof(kOff); }

ISTHMUS_ASCEND_EXPORT int aclGetCompileopt(int, char* value, size_t room) {
  if (value == nullptr || room < sizeof(kOff))
    return isthmus_ascend_report(kInvalidParameter, "aclGetCompileopt", "the value needs a larger buffer");
  std::memcpy(value, kOff, sizeof(kOff));
  return kSuccess;
}

ISTHMUS_ASCEND_EXPORT int aclopCompileAndExecute(const char* name, int inputs, const void* const[],
                                                 const void* const input[], int outputs, const void* const[],
                                                 void* const output[], const void*, int, int, const char*,
                                                 void* stream) {
  return execute("aclopCompileAndExecute", name, inputs, input, outputs, output, stream);
}

ISTHMUS_ASCEND_EXPORT int aclopCompileAndExecuteV2(const char* name, int inputs, void* const[],
                                                   void* const input[], int outputs, void* const[],
                                                   void* const output[], void*, int, int, const char*,
                                                   void* stream) {
  return execute("aclopCompileAndExecuteV2", name, inputs, input, outputs, output, stream);
}

ISTHMUS_ASCEND_EXPORT int aclopStartDumpArgs(uint32_t, const char*) { return kSuccess; }
ISTHMUS_ASCEND_EXPORT int aclopStopDumpArgs(uint32_t) { return kSuccess; }
