// Profiling entry points: accepted, so that the vendor's profiler runs; it finds no device data.
#include <time.h>

#include <cstdint>

#include "errors.h"
#include "handles.h"
#include "memory.h"

using namespace isthmus::ascend;

namespace {

// Targets of the pointers aclprofConfig and aclprofStepInfo.
struct Opaque {};

Handles<Opaque>& opaque() {
  static Handles<Opaque>* const opaque = new Handles<Opaque>{HandleKind::kOpaque};
  return *opaque;
}

int destroy(const char* function, const void* handle) {
  return call(function, [&] {
    if (handle != nullptr) require_found("object", handle, opaque().remove(handle));
  });
}

}  // namespace

ISTHMUS_ASCEND_EXPORT int aclprofInit(const char*, size_t) { return kSuccess; }
ISTHMUS_ASCEND_EXPORT int aclprofStart(const void*) { return kSuccess; }
ISTHMUS_ASCEND_EXPORT int aclprofStop(const void*) { return kSuccess; }
ISTHMUS_ASCEND_EXPORT int aclprofFinalize() { return kSuccess; }
ISTHMUS_ASCEND_EXPORT int aclprofGetStepTimestamp(void*, int, void*) { return kSuccess; }

ISTHMUS_ASCEND_EXPORT void* aclprofCreateConfig(uint32_t*, uint32_t, int, const void*, uint64_t) {
  return opaque().add(std::make_shared<Opaque>());
}

ISTHMUS_ASCEND_EXPORT int aclprofDestroyConfig(const void* config) {
  return destroy("aclprofDestroyConfig", config);
}

ISTHMUS_ASCEND_EXPORT void* aclprofCreateStepInfo() { return opaque().add(std::make_shared<Opaque>()); }

ISTHMUS_ASCEND_EXPORT int aclprofDestroyStepInfo(void* info) {
  return destroy("aclprofDestroyStepInfo", info);
}

ISTHMUS_ASCEND_EXPORT int MsprofRegisterCallback(uint32_t, int (*)(uint32_t, void*, uint32_t)) {
  return kSuccess;
}
ISTHMUS_ASCEND_EXPORT int MsprofReportApi(uint32_t, const void*) { return kSuccess; }
ISTHMUS_ASCEND_EXPORT int MsprofReportCompactInfo(uint32_t, const void*, uint32_t) { return kSuccess; }
ISTHMUS_ASCEND_EXPORT int MsprofReportAdditionalInfo(uint32_t, const void*, uint32_t) { return kSuccess; }

// FNV-1a; 0 of what is not text.
ISTHMUS_ASCEND_EXPORT uint64_t MsprofGetHashId(const char* text, size_t length) {
  if (call("MsprofGetHashId", [&] { require_accessible(text, length, "text", Access::kRead); }) != kSuccess)
    return 0;
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < length; ++i) hash = (hash ^ static_cast<unsigned char>(text[i])) * 1099511628211u;
  return hash;
}

ISTHMUS_ASCEND_EXPORT uint64_t MsprofSysCycleTime() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC_RAW, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(time.tv_nsec);
}
