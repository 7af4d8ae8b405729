#include "core/generator.h"

#include <array>
#include <mutex>

namespace isthmus {

ChipGenerator::ChipGenerator(c10::DeviceIndex device)
    : c10::GeneratorImpl(c10::Device(kChip, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      engine_(at::detail::createCPUGenerator()) {}

void ChipGenerator::set_state(const c10::TensorImpl& state) { engine_.unsafeGetGeneratorImpl()->set_state(state); }

c10::intrusive_ptr<c10::TensorImpl> ChipGenerator::get_state() const {
  return engine_.unsafeGetGeneratorImpl()->get_state();
}

ChipGenerator* ChipGenerator::clone_impl() const {
  auto* copy = new ChipGenerator(device_.index());
  copy->engine_ = engine_.clone();
  return copy;
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static std::array<std::once_flag, kMaxDevices> once;
  static auto& generators = *new std::array<at::Generator, kMaxDevices>;
  if (device < 0) device = current_device();
  TORCH_CHECK(device < device_count(), "chip:", static_cast<int>(device), " does not exist: ",
              static_cast<int>(device_count()), " devices are there.");
  std::call_once(once[device],
                 [device] { generators[device] = at::make_generator<ChipGenerator>(device); });
  return generators[device];
}

const at::Generator& engine_of(const at::Generator& generator) {
  TORCH_CHECK(generator.device().type() == kChip, "Expected a 'chip' device type for generator but found '",
              generator.device().type(), "'");
  return static_cast<const ChipGenerator*>(generator.unsafeGetGeneratorImpl())->engine();
}

}  // namespace isthmus
