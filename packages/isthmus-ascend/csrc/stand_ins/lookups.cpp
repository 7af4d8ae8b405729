// Preloaded by `isthmus ascend run --report`: notes the aclnn functions that a program looks up and
// libopapi.so lacks.
#include <dlfcn.h>

#include <cstring>

#include "acl/enqueue.h"

// The first versions, which every C library has; portable_glibc.h, which does this elsewhere, defines
// dlsym().
#if defined(__x86_64__)
#define ISTHMUS_FIRST_GLIBC "GLIBC_2.2.5"
#else
#define ISTHMUS_FIRST_GLIBC "GLIBC_2.17"
#endif
__asm__(".symver dlopen,dlopen@" ISTHMUS_FIRST_GLIBC);
__asm__(".symver dlvsym,dlvsym@" ISTHMUS_FIRST_GLIBC);

namespace {

using Find = void* (*)(void*, const char*);

Find find() {
  static const auto found = reinterpret_cast<Find>(dlvsym(RTLD_NEXT, "dlsym", ISTHMUS_FIRST_GLIBC));
  return found;
}

void note_if_missing(const char* name) {
  if (std::strstr(name, "GetWorkspaceSize") != nullptr) return;
  void* const operators = dlopen("libopapi.so", RTLD_NOW | RTLD_NOLOAD);
  void* const runtime = dlopen("libascendcl.so", RTLD_NOW | RTLD_NOLOAD);
  if (operators == nullptr || runtime == nullptr || find()(operators, name) != nullptr) return;
  using Count = decltype(&isthmus_ascend_count);
  if (const auto count = reinterpret_cast<Count>(find()(runtime, "isthmus_ascend_count")))
    count(name, kMissingCall, "");
}

}  // namespace

// A tail call, so that the C library still sees who called.
extern "C" __attribute__((visibility("default"))) void* dlsym(void* handle, const char* name) noexcept {
  if (std::strncmp(name, "aclnn", 5) == 0) note_if_missing(name);
  return find()(handle, name);
}
