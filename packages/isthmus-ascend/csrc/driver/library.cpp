#include "library.h"

#include <dlfcn.h>

namespace isthmus::npu {

Library::Library(const char* name, isthmus_status absent)
    : name_(name), absent_(absent), handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr)
    drivers::fail(absent,
                  "%s; install the vendor's toolkit and source its set_env.sh, or use `isthmus ascend run`",
                  dlerror());
}

void* Library::find(const char* function) const { return dlsym(handle_, function); }

void* Library::require(const char* function) const {
  void* const found = find(function);
  if (found == nullptr) drivers::fail(absent_, "%s has no %s; use a newer toolkit", name_, function);
  return found;
}

}  // namespace isthmus::npu
