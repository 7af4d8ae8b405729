// Device guard: devices, streams and events for code that is independent of the backend (autograd,
// torch.accelerator, c10d).
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "core/capture.h"
#include "core/event.h"
#include "core/runtime.h"
#include "core/stream.h"
#include "core/stream_trace.h"
#include "memory/memory.h"

namespace isthmus {
namespace {

// Quantized, packed and opaque dtypes: no kernel of PyTorch converts them.
constexpr uint64_t dtypes(int first, int last) { return (uint64_t{2} << last) - (uint64_t{1} << first); }
constexpr uint64_t kOpaqueDtypes =
    dtypes(c10::kIndex_QInt8, c10::kIndex_QInt32) | dtypes(c10::kIndex_QUInt4x2, c10::kIndex_Bits16) |
    dtypes(c10::kIndex_UInt1, c10::kIndex_UInt7) | dtypes(c10::kIndex_Int1, c10::kIndex_Int7) |
    dtypes(c10::kIndex_Float4_e2m1fn_x2, c10::kIndex_Float4_e2m1fn_x2);

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kChip; }

  c10::Device exchangeDevice(c10::Device device) const override {
    return c10::Device(kChip, exchange_device(device.index()));
  }
  c10::Device getDevice() const override { return c10::Device(kChip, current_device()); }
  void setDevice(c10::Device device) const override {
    if (device.index() >= 0) set_current_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0 && device.index() < kMaxDevices) restore_device(device.index());
  }
  c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }

  // Autograd calls it before it chooses the thread that runs a node.
  c10::Stream getStream(c10::Device device) const override {
    keep_backward_in_thread();
    if (device.index() > 0) check_device(device.index());
    return current_stream(device.index());
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return default_stream(device.index()); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    return stream_from_pool(device.index(), high_priority);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return new_stream(device.index(), priority);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    c10::Stream previous = current_stream(stream.device_index());
    set_current_stream(stream);
    return previous;
  }
  bool isStreamCapturing(const c10::Stream& stream) const override { return capture_of(stream) != nullptr; }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return stream_handle(stream); }
  bool queryStream(const c10::Stream& stream) const override {
    require_not_captured(stream, "Stream.query()");
    const bool done = query_stream(stream);
    if (done) tell(StreamAction::kStreamDone, nullptr, stream);
    return done;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    require_not_captured(stream, "Stream.synchronize()");
    synchronize_stream(stream);
    tell(StreamAction::kStreamDone, nullptr, stream);
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    require_not_captured(device, "synchronize()");
    synchronize_device(device);
    tell(StreamAction::kDeviceDone, nullptr, default_stream(device));
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device,
              const c10::EventFlag flag) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(),
                "an event of chip:", static_cast<int>(device),
                " cannot be recorded on a stream of chip:", static_cast<int>(stream.device_index()), ".");
    record_event(event, stream, flag == c10::EventFlag::BACKEND_DEFAULT);
    tell(StreamAction::kRecord, *event, stream);
  }
  void block(void* event, const c10::Stream& stream) const override {
    wait_event(event, stream);
    tell(StreamAction::kWait, event, stream);
  }
  bool queryEvent(void* event) const override {
    require_event_not_captured(event, "Event.query()");
    const bool done = query_event(event);
    if (done) tell(StreamAction::kEventDone, event, default_stream(0));
    return done;
  }
  void synchronizeEvent(void* event) const override {
    require_event_not_captured(event, "Event.synchronize()");
    synchronize_event(event);
    tell(StreamAction::kEventDone, event, default_stream(0));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { destroy_event(event); }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    return elapsed_ms(start, end);
  }

  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability capability;
    capability.capability_data.capability_bits &= ~kOpaqueDtypes;
    return capability;
  }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    memory::device_allocator().recordStream(data, stream);
    tell(StreamAction::kMemoryUsed, data.get(), stream);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace
}  // namespace isthmus
