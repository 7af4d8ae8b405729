// Random numbers of the chip: CPU's mt19937, so that a seed gives the numbers that it gives on CPU.
#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include "core/runtime.h"

namespace isthmus {

class ChipGenerator final : public c10::GeneratorImpl {
 public:
  explicit ChipGenerator(c10::DeviceIndex device);

  // The engine, as CPU kernels take it. Lock this generator's mutex of its own: kernels lock the engine's.
  const at::Generator& engine() const { return engine_; }

  void set_current_seed(uint64_t seed) override { engine_.set_current_seed(seed); }
  // The engine has none; 0 is what pickling a generator carries.
  void set_offset(uint64_t offset) override {
    TORCH_CHECK(offset == 0, "a chip generator has no offset; set its state.");
  }
  uint64_t get_offset() const override { return 0; }
  uint64_t current_seed() const override { return engine_.current_seed(); }
  uint64_t seed() override { return engine_.seed(); }
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

 private:
  ChipGenerator* clone_impl() const override;

  at::Generator engine_;
};

// Generator of the device that operators use when none is given.
const at::Generator& default_generator(c10::DeviceIndex device);

// Seeds the default generator of every device, those not made yet included. Does not initialise the driver.
void seed_default_generators(uint64_t seed);

// The engine of a chip generator, or of the device's default one.
const at::Generator& engine_of(const at::Generator& generator);

}  // namespace isthmus
