#include "core/generator.h"

#include <array>
#include <mutex>
#include <optional>
#include <utility>

namespace isthmus {

ChipGenerator::ChipGenerator(c10::DeviceIndex device)
    : c10::GeneratorImpl(c10::Device(kChip, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      engine_(at::detail::createCPUGenerator()) {}

void ChipGenerator::set_state(const c10::TensorImpl& state) {
  engine_.unsafeGetGeneratorImpl()->set_state(state);
}

c10::intrusive_ptr<c10::TensorImpl> ChipGenerator::get_state() const {
  return engine_.unsafeGetGeneratorImpl()->get_state();
}

ChipGenerator* ChipGenerator::clone_impl() const {
  auto* copy = new ChipGenerator(device_.index());
  copy->engine_ = engine_.clone();
  return copy;
}

namespace {

// Default generators are made at first use, since counting devices initialises the driver; seeding does not.
struct Defaults {
  std::mutex mutex;
  std::array<at::Generator, kMaxDevices> generators;
  std::array<std::once_flag, kMaxDevices> once;
  std::optional<uint64_t> seed;  // of those that are not made yet
};

Defaults& defaults() {
  static auto& instance = *new Defaults;
  return instance;
}

void make_default_generator(c10::DeviceIndex device) {
  Defaults& d = defaults();
  at::Generator made = at::make_generator<ChipGenerator>(device);
  std::lock_guard<std::mutex> lock(d.mutex);
  if (d.seed) {
    made.set_current_seed(*d.seed);
  } else {
    made.seed();
  }
  d.generators[device] = std::move(made);
}

}  // namespace

const at::Generator& default_generator(c10::DeviceIndex device) {
  if (device < 0) device = current_device();
  check_device(device);
  Defaults& d = defaults();
  std::call_once(d.once[device], make_default_generator, device);
  return d.generators[device];
}

void seed_default_generators(uint64_t seed) {
  Defaults& d = defaults();
  std::lock_guard<std::mutex> lock(d.mutex);
  d.seed = seed;
  for (at::Generator& generator : d.generators) {
    if (!generator.defined()) continue;
    at::Generator engine = engine_of(generator);
    std::lock_guard<std::mutex> engine_lock(engine.mutex());
    generator.set_current_seed(seed);
  }
}

const at::Generator& engine_of(const at::Generator& generator) {
  TORCH_CHECK(generator.device().type() == kChip, "Expected a 'chip' device type for generator but found '",
              generator.device().type(), "'");
  return static_cast<const ChipGenerator*>(generator.unsafeGetGeneratorImpl())->engine();
}

}  // namespace isthmus
