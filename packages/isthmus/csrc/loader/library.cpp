#include "loader/library.h"

#include <dlfcn.h>

#include <cstdio>

namespace isthmus::loader {

void* find_symbol(const std::string& what, const std::string& path, const char* symbol) {
  check_complete(what, path);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw Refused(what + " " + path + " cannot be opened: " + dlerror());
  void* address = dlsym(library, symbol);
  if (address == nullptr)
    throw Refused(what + " " + path + " does not export " + symbol + "; it is not an Isthmus " + what + ".");
  return address;
}

std::string version_text(unsigned version) {
  return std::to_string(version >> 16) + "." + std::to_string(version & 0xffff);
}

void write_error(const char* message, char* error, size_t error_bytes) noexcept {
  if (error_bytes > 0) std::snprintf(error, error_bytes, "%s", message);
}

}  // namespace isthmus::loader
