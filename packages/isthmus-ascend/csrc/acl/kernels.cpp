// Kernels compiled for NPUs, which do not run here.
#include <cstdint>

#include "errors.h"

using namespace isthmus::ascend;

namespace {

[[noreturn]] void refuse() { fail(kUnsupported, "the host chip runs no kernels compiled for NPUs"); }

}  // namespace

ISTHMUS_ASCEND_EXPORT int aclrtBinaryLoadFromData(const void*, size_t, const void*, void**) {
  return call("aclrtBinaryLoadFromData", refuse);
}

ISTHMUS_ASCEND_EXPORT int aclrtBinaryGetFunction(void*, const char*, void**) {
  return call("aclrtBinaryGetFunction", refuse);
}

ISTHMUS_ASCEND_EXPORT int aclrtGetFunctionAddr(void*, void**, void**) {
  return call("aclrtGetFunctionAddr", refuse);
}

// Linked by name from the wheel; arguments do not matter to a function that refuses.
ISTHMUS_ASCEND_EXPORT int rtDevBinaryRegister() { return call("rtDevBinaryRegister", refuse); }

ISTHMUS_ASCEND_EXPORT int rtFunctionRegister() { return call("rtFunctionRegister", refuse); }

ISTHMUS_ASCEND_EXPORT int rtKernelLaunch() { return call("rtKernelLaunch", refuse); }

ISTHMUS_ASCEND_EXPORT int rtGetC2cCtrlAddr() { return call("rtGetC2cCtrlAddr", refuse); }
