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

ISTHMUS_ASCEND_EXPORT int rtDevBinaryRegister(const void*, void**) {
  return call("rtDevBinaryRegister", refuse);
}

ISTHMUS_ASCEND_EXPORT int rtFunctionRegister(void*, const void*, const char*, const void*, uint32_t) {
  return call("rtFunctionRegister", refuse);
}

ISTHMUS_ASCEND_EXPORT int rtKernelLaunch(const void*, uint32_t, void*, uint32_t, void*, void*) {
  return call("rtKernelLaunch", refuse);
}

ISTHMUS_ASCEND_EXPORT int rtGetC2cCtrlAddr(uint64_t*, uint32_t*) { return call("rtGetC2cCtrlAddr", refuse); }
