// libacl_op_compiler.so: the older interface of operators. Compilation at run time is off, so that
// applications take the aclnn functions; operators of the older interface are refused by name.
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "ascend/acl/enqueue.h"

#define ISTHMUS_ASCEND_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kSuccess = 0, kInvalidParameter = 100000, kUnsupported = 207000;
constexpr char kOff[] = "disable";

int refuse(const char* function, const char* operator_name) {
  char message[256];
  std::snprintf(message, sizeof(message), "operator %s of the older interface is not implemented",
                operator_name != nullptr ? operator_name : "(null)");
  return isthmus_ascend_report(kUnsupported, function, message);
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

ISTHMUS_ASCEND_EXPORT int aclopCompileAndExecute(const char* name, int, const void* const[],
                                                 const void* const[], int, const void* const[], void* const[],
                                                 const void*, int, int, const char*, void*) {
  return refuse("aclopCompileAndExecute", name);
}

ISTHMUS_ASCEND_EXPORT int aclopCompileAndExecuteV2(const char* name, int, void* const[], void* const[], int,
                                                   void* const[], void* const[], void*, int, int, const char*,
                                                   void*) {
  return refuse("aclopCompileAndExecuteV2", name);
}

ISTHMUS_ASCEND_EXPORT int aclopStartDumpArgs(uint32_t, const char*) { return kSuccess; }
ISTHMUS_ASCEND_EXPORT int aclopStopDumpArgs(uint32_t) { return kSuccess; }
