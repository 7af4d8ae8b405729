#include "core/generator.h"

#include <ATen/Utils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <array>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "core/capture.h"
#include "core/host_work.h"
#include "core/stream.h"
#include "isthmus_options.h"

namespace isthmus {

namespace {

ChipGenerator& as_chip_generator(const c10::intrusive_ptr<c10::GeneratorImpl>& generator) {
  return static_cast<ChipGenerator&>(*generator);
}

// A state that was read in a capture; at each replay, the one of that time.
class ReadState final : public Step {
 public:
  ReadState(c10::intrusive_ptr<c10::GeneratorImpl> generator, at::Tensor captured)
      : generator_(std::move(generator)), captured_(captured.clone()), now_(captured_) {}

  static bool is_of(Step& step, const c10::TensorImpl& state) {
    const auto* read = dynamic_cast<ReadState*>(&step);
    return read != nullptr && read->captured_.nbytes() == static_cast<size_t>(state.numel()) &&
           std::memcmp(read->captured_.const_data_ptr(), state.data(), read->captured_.nbytes()) == 0;
  }
  const c10::TensorImpl& now() const { return *now_.unsafeGetTensorImpl(); }

  void replay(c10::Stream) override { now_ = at::Tensor(as_chip_generator(generator_).state()); }
  const char* name() const noexcept override { return "Generator.get_state"; }

 private:
  const c10::intrusive_ptr<c10::GeneratorImpl> generator_;
  const at::Tensor captured_;
  at::Tensor now_;
};

class WriteState final : public Step {
 public:
  WriteState(c10::intrusive_ptr<c10::GeneratorImpl> generator, const ReadState& read)
      : generator_(std::move(generator)), read_(read) {}

  void replay(c10::Stream) override { as_chip_generator(generator_).restore(read_.now()); }
  const char* name() const noexcept override { return "Generator.set_state"; }

 private:
  const c10::intrusive_ptr<c10::GeneratorImpl> generator_;
  const ReadState& read_;  // read of the same graph
};

}  // namespace

bool philox_is_chosen() {
  static const bool is_chosen = options::read(options::kHostRng) == "philox";
  return is_chosen;
}

const at::Generator& Engine::of_stream(c10::Stream stream) {
  wait(stream);
  const std::lock_guard<std::mutex> lock(mutex_);
  stream_ = stream;
  return generator_;
}

const at::Generator& Engine::of_host() {
  wait(stream_at_work());
  return generator_;
}

// Work of the same stream comes in order.
void Engine::wait(std::optional<c10::Stream> next) {
  if (C10_LIKELY(!asked_for_host_work())) return;
  std::optional<c10::Stream> last;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    last = stream_;
  }
  if (last && last != next && !in_bad_fork()) drain(*last);
}

ChipGenerator::ChipGenerator(c10::DeviceIndex device)
    : c10::GeneratorImpl(c10::Device(kChip, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {
  if (philox_is_chosen()) {
    philox_ = std::make_shared<philox::Position>();
    philox_->set({c10::default_rng_seed_val, 0});
  } else {
    engine_ = std::make_shared<Engine>(at::detail::createCPUGenerator());
  }
}

at::Generator ChipGenerator::engine(c10::Stream stream) {
  return philox_ ? engine() : engine_->of_stream(stream);
}

at::Generator ChipGenerator::engine() {
  if (!philox_) return engine_->of_host();
  const philox::Block words = philox_->take(philox::kWords)[0];
  return at::detail::createCPUGenerator(uint64_t{words[1]} << 32 | words[0]);
}

void ChipGenerator::set_current_seed(uint64_t seed) {
  if (const auto capture = capture_of(current_stream(device_.index()))) {
    if (seed == current_seed()) return;
    capture->refuse("manual_seed() of another seed than the generator has");
  }
  if (philox_) {
    philox_->set({seed, 0});
    return;
  }
  at::Generator engine = engine_->of_host();
  std::lock_guard<std::mutex> lock(engine.mutex());
  engine.set_current_seed(seed);
}

void ChipGenerator::set_offset(uint64_t offset) {
  require_not_captured(current_stream(device_.index()), "set_offset() of a generator");
  if (!philox_) {
    TORCH_CHECK(offset == 0,
                "a chip generator of mt19937 has no offset: set its state, or set ISTHMUS_HOST_RNG=philox.");
    return;
  }
  TORCH_CHECK(offset % philox::kWords == 0, "the offset of a chip generator must be a multiple of 4, got ",
              offset, ".");
  philox_->set({philox_->get().seed, offset});
}

uint64_t ChipGenerator::current_seed() const {
  return philox_ ? philox_->get().seed : engine_->of_host().current_seed();
}

uint64_t ChipGenerator::seed() {
  const uint64_t random = c10::detail::getNonDeterministicRandom();
  set_current_seed(random);
  return random;
}

c10::intrusive_ptr<c10::TensorImpl> ChipGenerator::get_state() const {
  const c10::intrusive_ptr<c10::TensorImpl> now = state();
  const c10::Stream stream = current_stream(device_.index());
  if (const auto capture = capture_of(stream))
    capture->add(stream, std::make_unique<ReadState>(graphsafe_get_state(), at::Tensor(now)));
  return now;
}

void ChipGenerator::set_state(const c10::TensorImpl& state) {
  const c10::Stream stream = current_stream(device_.index());
  const auto capture = capture_of(stream);
  if (capture) {
    const auto* read = static_cast<ReadState*>(
        capture->last([&state](Step& step) { return ReadState::is_of(step, state); }));
    if (read == nullptr) capture->refuse("set_state() of a state that was not read in the capture");
    capture->add(stream, std::make_unique<WriteState>(graphsafe_get_state(), *read));
  }
  restore(state);
}

c10::intrusive_ptr<c10::TensorImpl> ChipGenerator::state() const {
  if (!philox_) return engine_->of_host().unsafeGetGeneratorImpl()->get_state();
  const philox::Sequence now = philox_->get();
  at::Tensor state = at::empty({sizeof(now)}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
  std::memcpy(state.mutable_data_ptr<uint8_t>(), &now, sizeof(now));
  return state.getIntrusivePtr();
}

void ChipGenerator::restore(const c10::TensorImpl& state) {
  if (!philox_) {
    engine_->of_host().unsafeGetGeneratorImpl()->set_state(state);
    return;
  }
  at::detail::check_rng_state(state);
  philox::Sequence next{0, 0};
  TORCH_CHECK(
      state.numel() == sizeof(next) || state.numel() == sizeof(next.seed), "a state of ", state.numel(),
      " bytes is not a Philox state (16 bytes: seed and offset); ISTHMUS_HOST_RNG differs from the run "
      "that saved it.");
  std::memcpy(&next, state.data(), state.numel());
  TORCH_CHECK(next.offset % philox::kWords == 0,
              "the offset of a chip generator must be a multiple of 4, got ", next.offset, ".");
  philox_->set(next);
}

c10::intrusive_ptr<c10::GeneratorImpl> ChipGenerator::graphsafe_get_state() const {
  auto shared = c10::make_intrusive<ChipGenerator>(device_.index());
  shared->engine_ = engine_;
  shared->philox_ = philox_;
  return shared;
}

void ChipGenerator::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) {
  const auto* other = dynamic_cast<const ChipGenerator*>(state.get());
  TORCH_CHECK(other != nullptr, "Expected a 'chip' device type for generator but found '",
              state ? state->device().str() : std::string("none"), "'");
  engine_ = other->engine_;
  philox_ = other->philox_;
}

ChipGenerator* ChipGenerator::clone_impl() const {
  auto* copy = new ChipGenerator(device_.index());
  if (philox_) {
    copy->philox_->set(philox_->get());
  } else {
    copy->engine_ = std::make_shared<Engine>(engine_->of_host().clone());
  }
  return copy;
}

namespace {

// Default generators are created at first use: counting devices initialises the driver, seeding does not.
struct Defaults {
  std::mutex mutex;
  std::array<at::Generator, kMaxDevices> generators;
  std::array<std::once_flag, kMaxDevices> once;
  std::optional<uint64_t> seed;  // seed of generators not created yet
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
  for (at::Generator& generator : d.generators)
    if (generator.defined()) generator.set_current_seed(seed);
}

ChipGenerator& chip_generator(const at::Generator& generator) {
  TORCH_CHECK(generator.device().type() == kChip, "Expected a 'chip' device type for generator but found '",
              generator.device().type(), "'");
  return *static_cast<ChipGenerator*>(generator.unsafeGetGeneratorImpl());
}

at::Generator engine_of(const at::Generator& generator) { return chip_generator(generator).engine(); }

}  // namespace isthmus
