// Hooks of the backend that PyTorch calls outside the dispatcher.
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "core/generator.h"
#include "core/runtime.h"
#include "core/stream.h"
#include "dispatch/operators/resize.h"
#include "memory/memory.h"

namespace isthmus {
namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return driver_initialized(); }
  void init() const override { driver(); }

  c10::DeviceIndex deviceCount() const override { return device_count(); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_current_device(device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override { return exchange_device(device); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchange_device(device);
  }

  at::Device getDeviceFromPtr(void* data) const override {
    isthmus_pointer_attributes attributes{};
    check(driver().pointer_attributes(data, &attributes), "device of pointer");
    TORCH_CHECK(attributes.kind == ISTHMUS_MEMORY_DEVICE, "pointer ", data, " is not chip memory.");
    return at::Device(kChip, static_cast<c10::DeviceIndex>(attributes.device));
  }
  bool isPinnedPtr(const void* data) const override {
    return driver_initialized() && memory::is_pinned(data);
  }
  at::Allocator* getPinnedMemoryAllocator() const override { return &memory::pinned_allocator(); }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    if (device < 0) device = current_device();
    check_device(device);
    return at::make_generator<ChipGenerator>(device);
  }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), bytes);
  }
};

[[maybe_unused]] const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace
}  // namespace isthmus
