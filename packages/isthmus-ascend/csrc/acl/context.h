// Contexts: what a thread works on.
#pragma once

#include <memory>

#include "chip.h"
#include "errors.h"
#include "handles.h"

namespace isthmus::ascend {

struct Context {
  int32_t device;
};

// The calling thread's context. Throws kContextNull if it has none.
std::shared_ptr<Context> current_context();

// The host chip with the calling thread's device current there. Throws as above.
const isthmus_driver& current_chip();

// Returns false if the device has none.
bool remove_primary_context(int32_t device);

// Makes a device current in the driver for a scope; the thread need not have a context.
class DeviceScope {
 public:
  explicit DeviceScope(int32_t device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int32_t before_ = 0;
};

}  // namespace isthmus::ascend
