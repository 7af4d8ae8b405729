// Random numbers of the chip: the CPU's mt19937, so that a seed gives the same numbers as on the CPU; or
// Philox (ISTHMUS_HOST_RNG=philox), whose numbers depend on seed and offset only.
#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <memory>
#include <mutex>
#include <optional>

#include "core/philox.h"
#include "core/runtime.h"

namespace isthmus {

// Whether ISTHMUS_HOST_RNG selects Philox. Throws for a wrong value.
bool philox_is_chosen();

// An engine of mt19937, from which enqueued kernels draw later (core/host_work.h).
class Engine {
 public:
  explicit Engine(at::Generator generator) : generator_(std::move(generator)) {}

  const at::Generator& of_stream(c10::Stream stream);  // for work that is enqueued there
  const at::Generator& of_host();                      // after all enqueued work that draws

 private:
  void wait(std::optional<c10::Stream> next);

  const at::Generator generator_;
  std::mutex mutex_;
  std::optional<c10::Stream> stream_;  // of the last enqueued work that draws
};

class ChipGenerator final : public c10::GeneratorImpl {
 public:
  explicit ChipGenerator(c10::DeviceIndex device);

  // The generator for CPU kernels: the engine itself, or with Philox one seeded by the next block. Lock this
  // generator's own mutex: kernels lock the engine's.
  at::Generator engine();
  // The same for a kernel that is enqueued on the stream.
  at::Generator engine(c10::Stream stream);
  // Work that is enqueued on the stream will draw.
  void lend(c10::Stream stream) {
    if (engine_) engine_->of_stream(stream);
  }

  // The next words of Philox, which are consumed. Only where it is chosen.
  philox::Sequence take(uint64_t words) { return philox_->take(words); }

  void set_current_seed(uint64_t seed) override;
  // Offset in words of Philox, a multiple of 4. mt19937 has none; 0 is what pickling a generator carries.
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override { return philox_ ? philox_->get().offset : 0; }
  uint64_t current_seed() const override;
  uint64_t seed() override;
  // mt19937: CPU's state; Philox: seed and offset, 8 bytes each, or the seed alone.
  void set_state(const c10::TensorImpl& state) override;
  // In a capture, the state read at each replay: set_state() of it goes back there.
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  // The same outside of any capture.
  c10::intrusive_ptr<c10::TensorImpl> state() const;
  void restore(const c10::TensorImpl& state);
  // Identifies the state, which generators share after graphsafe_set_state().
  const void* state_key() const noexcept {
    return philox_ ? static_cast<const void*>(philox_.get()) : engine_.get();
  }
  // A generator that shares its state with this one, and the reverse conversion.
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override;

 private:
  ChipGenerator* clone_impl() const override;

  std::shared_ptr<Engine> engine_;            // null with Philox
  std::shared_ptr<philox::Position> philox_;  // null without
};

// Generator of the device that operators use when none is given.
const at::Generator& default_generator(c10::DeviceIndex device);

// Seeds the default generator of every device, including future ones. Does not initialise the driver.
void seed_default_generators(uint64_t seed);

// Checks that it is a generator of a chip, which may be another one than the tensor's, as on CUDA.
ChipGenerator& chip_generator(const at::Generator& generator);

// The generator that CPU kernels use in place of a chip generator.
at::Generator engine_of(const at::Generator& generator);

}  // namespace isthmus
