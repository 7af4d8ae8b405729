// Makes the functions of this library visible to libraries that are preloaded (LD_PRELOAD) to wrap them.
// RTLD_NEXT finds functions of global libraries only; Python loads those that torch_npu needs as local ones.
#include <dlfcn.h>

namespace {

__attribute__((constructor)) void join_global_scope() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&join_global_scope), &info) != 0)
    dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
}

}  // namespace
