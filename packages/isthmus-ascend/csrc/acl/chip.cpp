#include "chip.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "ascend_options.h"
#include "ascend_products.h"
#include "enqueue.h"
#include "errors.h"
#include "visible_devices.h"

namespace isthmus::ascend {
namespace {

// The driver of the host chip of isthmus; the build puts it into the folder of this library.
constexpr const char* kDriverLibrary = "/libisthmus_host.so";

// Options of the host chip, which reads them itself.
constexpr const char* kHostDevices = "ISTHMUS_HOST_DEVICES";
constexpr const char* kHostMemory = "ISTHMUS_HOST_MEMORY";
constexpr options::Switch kHostStrict{"ISTHMUS_HOST_STRICT", false};

std::atomic<bool> forked{false};

// Options of the Ascend machine come before those of the host chip.
template <typename Option>
void pass_option(const Option& from, const char* to) {
  options::read(from);
  const auto value = options::value_of(from.variable);
  if (!value.empty()) setenv(to, std::string(value).c_str(), 1);
}

void configure() {
  try {
    pass_option(options::kAscendDevices, kHostDevices);
    pass_option(options::kAscendMemory, kHostMemory);
    if (options::read(kHostStrict))
      fail(kUnsupported, "%s=1 is not supported: operators read device memory in place; unset it",
           kHostStrict.variable);
    if (options::value_of(kHostMemory).empty())
      setenv(kHostMemory, std::to_string(options::kAscendMemory.initial).c_str(), 1);
  } catch (const options::Error& error) {
    fail(kInvalidParameter, "%s", error.what());
  }
}

std::string folder_of_this_library() {
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&folder_of_this_library), &info);
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/'));
}

const isthmus_driver* open_driver() {
  configure();
  const std::string path = folder_of_this_library() + kDriverLibrary;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail(kInternal, "cannot open the host chip: %s", dlerror());
  const auto get = reinterpret_cast<isthmus_driver_get_fn>(dlsym(library, ISTHMUS_DRIVER_SYMBOL));
  const isthmus_driver* table = get != nullptr ? get(ISTHMUS_DRIVER_VERSION) : nullptr;
  if (table == nullptr) fail(kInternal, "%s is not a driver of version 1", path.c_str());
  return with_visible_devices(table);
}

}  // namespace

const isthmus_driver& driver() {
  static const isthmus_driver* const table = open_driver();
  return *table;
}

const isthmus_driver& chip() {
  static const isthmus_driver* const table = [] {
    check(driver().initialize());
    if (pthread_atfork(nullptr, nullptr, [] { forked = true; }) != 0)
      fail(kInternal, "pthread_atfork failed");
    return &driver();
  }();
  return *table;
}

bool is_forked() noexcept { return forked.load(std::memory_order_relaxed); }

int32_t device_count() {
  int32_t count = 0;
  check(driver().device_count(&count));
  return count;
}

void require_device(int32_t device) {
  const int32_t count = device_count();
  if (device < 0 || device >= count) {
    fail(kInvalidDevice,
         "device %d does not exist: %d available, numbered from 0; set %s, or correct "
         "ASCEND_RT_VISIBLE_DEVICES, in ascending order, if it is set",
         device, count, options::kAscendDevices.variable);
  }
}

namespace {

const Product& product() {
  static const Product product = [] {
    const std::string name = options::read(options::kAscendSoc), full = "Ascend" + name;
    std::string known;
    for (const Product& each : kProducts)
      if (each.name == name || each.short_name == name) return each;
    for (const Product& each : kProducts) {
      if (each.name == full) return each;
      known += (known.empty() ? "" : ", ") + std::string(each.name);
    }
    std::fprintf(stderr, "isthmus: %s=%s: unknown product; expected one of %s\n",
                 options::kAscendSoc.variable, name.c_str(), known.c_str());
    std::_Exit(2);
  }();
  return product;
}

}  // namespace

const std::string& soc_name() {
  static const std::string name(product().name);
  return name;
}

int soc_series() { return product().series; }

}  // namespace isthmus::ascend

ISTHMUS_ASCEND_EXPORT int isthmus_ascend_series() { return isthmus::ascend::soc_series(); }

ISTHMUS_ASCEND_EXPORT const isthmus_driver* isthmus_ascend_chip() {
  const isthmus_driver* found = nullptr;
  isthmus::ascend::call("isthmus_ascend_chip", [&] { found = &isthmus::ascend::chip(); });
  return found;
}
