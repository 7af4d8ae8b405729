// Kernels that draw from Philox, for random.cpp. Element i of a tensor, in row-major order, is made of the
// words of its own place in the sequence, so that neither strides nor threads matter.
#pragma once

#include <ATen/Dispatch_v2.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>

#include "core/generator.h"
#include "core/host_work.h"
#include "dispatch/captured.h"
#include "dispatch/delegate_scope.h"
#include "dispatch/host_alias.h"
#include "dispatch/mapping.h"

namespace isthmus::random {

using GeneratorArgument = std::optional<at::Generator>;

constexpr int64_t kGrain = 8192;  // blocks that are worth a thread
constexpr double kTwoPi = 6.283185307179586;

// ---- where numbers go, and which they are

inline at::Generator generator_of(const GeneratorArgument& given, c10::DeviceIndex device) {
  if (!given || !given->defined()) return default_generator(device);
  static_cast<void>(chip_generator(*given));
  return *given;
}

// A captured write(), which draws again at each replay.
template <class Body>
class Written final : public Step {
 public:
  Written(const char* name, at::Tensor elements, const at::Generator& generator, int64_t words, Body body)
      : name_(name),
        elements_(std::move(elements)),
        generator_(shared_state(generator)),
        words_(words),
        body_(body) {}

  void replay(c10::Stream) override { body_(elements_, chip_generator(generator_).take(words_)); }
  const char* name() const noexcept override { return name_; }

 private:
  const char* const name_;
  const at::Tensor elements_;
  const at::Generator generator_;
  const int64_t words_;
  const Body body_;
};

// Calls body with a CPU tensor over the elements of self in row-major order, to be written, and the words of
// the generator that it takes. body must own what it uses.
template <class Body>
void write(const char* name, const at::Tensor& self, const GeneratorArgument& given, int64_t words,
           const Body& body) {
  at::assert_no_internal_overlap(self);
  if (!self.is_contiguous()) {
    const at::Tensor dense = at::empty(self.sizes(), self.options());
    write(name, dense, given, words, body);
    self.copy_(dense);
    return;
  }
  static const std::string caller = "Philox";
  Mapping mapping(Mapping::Kind::kAlias, caller);
  const at::Tensor elements = mapping.argument(self, true);
  const c10::Stream stream = current_stream(mapping.device());
  const at::Generator generator = generator_of(given, mapping.device());
  memory::Tape tape;
  if (const auto capture = capture_of(stream)) {
    save(*capture, generator);
    save(*capture, self);
    mapping.lend();
    capture->add(stream, std::make_unique<Written<Body>>(name, elements, generator, words, body));
  }
  const philox::Sequence sequence = chip_generator(generator).take(words);
  if (C10_UNLIKELY(is_asynchronous()) && !capturing()) {
    const profiler::Work work(profiler::Kind::kKernel, name, stream, profiler::Work::By::kDriver);
    const at::Tensor alias = HostAliases(/*keeps=*/false).alias(self);
    enqueue_host_work(stream, [alias, sequence, body] { body(alias, sequence); });
    return;
  }
  const DelegateScope scope(name, stream, &tape);
  body(elements, sequence);
}

// Element i is make(word i, i), with words of 32 or 64 bits.
template <class word_t, class scalar_t, class Make>
void generate(scalar_t* out, int64_t count, philox::Sequence sequence, const Make& make) {
  constexpr int64_t per_block = 16 / sizeof(word_t);
  at::parallel_for(0, (count + per_block - 1) / per_block, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const philox::Block words = sequence[block];
      const int64_t first = block * per_block;
      for (int64_t i = 0; i < std::min(per_block, count - first); ++i) {
        if constexpr (sizeof(word_t) == 4) {
          out[first + i] = make(words[i], first + i);
        } else {
          out[first + i] = make(uint64_t{words[2 * i + 1]} << 32 | words[2 * i], first + i);
        }
      }
    }
  });
}

// Takes words of the generator and writes self, of dtype scalar_t, with make.
template <class word_t, class scalar_t, class Make>
void fill(const char* name, const at::Tensor& self, const GeneratorArgument& generator, const Make& make) {
  const int64_t count = self.numel();
  const int64_t words = count * static_cast<int64_t>(sizeof(word_t) / 4);
  write(name, self, generator, words, [count, make](const at::Tensor& elements, philox::Sequence sequence) {
    generate<word_t>(elements.mutable_data_ptr<scalar_t>(), count, sequence, make);
  });
}

// ---- real numbers of words

template <class scalar_t>
using Real = std::conditional_t<std::is_same_v<scalar_t, double>, double, float>;
template <class scalar_t>
using Word = std::conditional_t<std::is_same_v<Real<scalar_t>, double>, uint64_t, uint32_t>;

// Uniform number in [0, 1), with no more bits than scalar_t has, so that none is rounded to 1.
template <class scalar_t>
Real<scalar_t> uniform_of(Word<scalar_t> word) {
  constexpr int digits = std::numeric_limits<scalar_t>::digits;
  constexpr int dropped = std::numeric_limits<Word<scalar_t>>::digits - digits;
  return static_cast<Real<scalar_t>>(word >> dropped) /
         static_cast<Real<scalar_t>>(Word<scalar_t>{1} << digits);
}

// Uniform number in (0, 1], for logarithms.
inline float positive_uniform(uint32_t word) { return static_cast<float>(word) * 0x1p-32f + 0x1p-33f; }
inline double positive_uniform(uint64_t word) { return static_cast<double>(word) * 0x1p-64 + 0x1p-65; }

// Box and Muller: two words make two normal numbers; element i takes one of the pair it is in.
template <class scalar_t, class Make>
void fill_normal(const char* name, const at::Tensor& self, const GeneratorArgument& generator,
                 const Make& make) {
  using real_t = Real<scalar_t>;
  using word_t = Word<scalar_t>;
  const int64_t count = self.numel();
  const int64_t words = count * static_cast<int64_t>(sizeof(word_t) / 4);
  write(name, self, generator, words, [count, make](const at::Tensor& elements, philox::Sequence sequence) {
    constexpr int64_t per_block = 16 / sizeof(word_t);
    scalar_t* out = elements.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, (count + per_block - 1) / per_block, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const auto words = std::bit_cast<std::array<word_t, per_block>>(sequence[block]);
        for (int64_t i = 0; i < per_block; i += 2) {
          const real_t radius = std::sqrt(-2 * std::log(positive_uniform(words[i])));
          const real_t angle = static_cast<real_t>(kTwoPi) * positive_uniform(words[i + 1]);
          const int64_t at = block * per_block + i;
          if (at < count) out[at] = make(radius * std::cos(angle));
          if (at + 1 < count) out[at + 1] = make(radius * std::sin(angle));
        }
      }
    });
  });
}

// ---- kernels for the templates of ATen/native/DistributionTemplates.h, which check the arguments

#define ISTHMUS_DISPATCH_FLOATING(dtype, name, ...) \
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, name, __VA_ARGS__)

template <class>
struct Uniform {
  void operator()(at::TensorIteratorBase& iter, double from, double to, const GeneratorArgument& generator) {
    const at::Tensor& self = iter.tensor(0);
    ISTHMUS_DISPATCH_FLOATING(self.scalar_type(), "uniform_", [&] {
      using real_t = Real<scalar_t>;
      const auto low = static_cast<scalar_t>(from), high = static_cast<scalar_t>(to);
      const real_t start = static_cast<real_t>(low), range = static_cast<real_t>(high) - start;
      fill<Word<scalar_t>, scalar_t>("aten::uniform_", self, generator, [=](auto word, int64_t) {
        const auto value = static_cast<scalar_t>(uniform_of<scalar_t>(word) * range + start);
        return value < high ? value : low;  // rounding may reach the end, which is excluded
      });
    });
  }
};

template <class>
struct Normal {
  void operator()(const at::Tensor& self, double mean, double std, const GeneratorArgument& generator) {
    ISTHMUS_DISPATCH_FLOATING(self.scalar_type(), "normal_", [&] {
      using real_t = Real<scalar_t>;
      const auto center = static_cast<real_t>(mean), scale = static_cast<real_t>(std);
      fill_normal<scalar_t>("aten::normal_", self, generator,
                            [=](real_t z) { return static_cast<scalar_t>(z * scale + center); });
    });
  }
};

template <class>
struct LogNormal {
  void operator()(at::TensorIteratorBase& iter, double mean, double std, const GeneratorArgument& generator) {
    const at::Tensor& self = iter.tensor(0);
    ISTHMUS_DISPATCH_FLOATING(self.scalar_type(), "log_normal_", [&] {
      using real_t = Real<scalar_t>;
      const auto center = static_cast<real_t>(mean), scale = static_cast<real_t>(std);
      fill_normal<scalar_t>("aten::log_normal_", self, generator,
                            [=](real_t z) { return static_cast<scalar_t>(std::exp(z * scale + center)); });
    });
  }
};

template <class>
struct Exponential {
  void operator()(at::TensorIteratorBase& iter, double lambda, const GeneratorArgument& generator) {
    const at::Tensor& self = iter.tensor(0);
    ISTHMUS_DISPATCH_FLOATING(self.scalar_type(), "exponential_", [&] {
      using real_t = Real<scalar_t>;
      const auto rate = static_cast<real_t>(lambda);
      constexpr real_t smallest = std::numeric_limits<real_t>::epsilon() / 2;  // 0 is excluded
      fill<Word<scalar_t>, scalar_t>("aten::exponential_", self, generator, [=](auto word, int64_t) {
        return static_cast<scalar_t>(std::max(-std::log(positive_uniform(word)), smallest) / rate);
      });
    });
  }
};

template <class>
struct Cauchy {
  void operator()(at::TensorIteratorBase& iter, double median, double sigma,
                  const GeneratorArgument& generator) {
    const at::Tensor& self = iter.tensor(0);
    ISTHMUS_DISPATCH_FLOATING(self.scalar_type(), "cauchy_", [&] {
      using real_t = Real<scalar_t>;
      const auto center = static_cast<real_t>(median), scale = static_cast<real_t>(sigma);
      fill<Word<scalar_t>, scalar_t>("aten::cauchy_", self, generator, [=](auto word, int64_t) {
        const real_t angle = static_cast<real_t>(kTwoPi / 2) * (positive_uniform(word) - real_t(0.5));
        return static_cast<scalar_t>(center + scale * std::tan(angle));
      });
    });
  }
};

template <class>
struct Geometric {
  void operator()(at::TensorIteratorBase& iter, double p, const GeneratorArgument& generator) {
    const at::Tensor& self = iter.tensor(0);
    AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "geometric_", [&] {
      const double failure = std::log1p(-p);
      fill<uint64_t, scalar_t>("aten::geometric_", self, generator, [=](uint64_t word, int64_t) {
        return static_cast<scalar_t>(std::max(std::ceil(std::log(positive_uniform(word)) / failure), 1.0));
      });
    });
  }
};

#define ISTHMUS_DISPATCH_NUMBERS(dtype, name, ...)                                                     \
  AT_DISPATCH_V2(dtype, name, AT_WRAP(__VA_ARGS__), AT_EXPAND(AT_ALL_TYPES), at::kHalf, at::kBFloat16, \
                 at::kBool, AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES))

// Integers of [base, base + range). Words are wide enough that a remainder favours none by more than 2^-16.
inline void fill_integers(const at::Tensor& self, uint64_t range, int64_t base,
                          const GeneratorArgument& generator) {
  ISTHMUS_DISPATCH_NUMBERS(self.scalar_type(), "random_", [&] {
    const auto number = [=](uint64_t remainder) {
      return static_cast<scalar_t>(static_cast<int64_t>(remainder + static_cast<uint64_t>(base)));
    };
    if (range <= (1u << 16)) {
      const auto narrow = static_cast<uint32_t>(range);
      fill<uint32_t, scalar_t>("aten::random_", self, generator,
                               [=](uint32_t word, int64_t) { return number(word % narrow); });
    } else {
      fill<uint64_t, scalar_t>("aten::random_", self, generator,
                               [=](uint64_t word, int64_t) { return number(word % range); });
    }
  });
}

template <class>
struct RandomFromTo {
  void operator()(at::TensorIteratorBase& iter, uint64_t range, int64_t base,
                  const GeneratorArgument& generator) {
    fill_integers(iter.tensor(0), range, base, generator);
  }
  // All of int64.
  void operator()(at::TensorIteratorBase& iter, const GeneratorArgument& generator) {
    const at::Tensor& self = iter.tensor(0);
    ISTHMUS_DISPATCH_NUMBERS(self.scalar_type(), "random_", [&] {
      fill<uint64_t, scalar_t>("aten::random_", self, generator, [](uint64_t word, int64_t) {
        return static_cast<scalar_t>(static_cast<int64_t>(word));
      });
    });
  }
};

// Draws from 0 to the largest integer, or to the largest up to which scalar_t has every integer.
template <class>
struct Random {
  void operator()(at::TensorIteratorBase& iter, const GeneratorArgument& generator) {
    const at::Tensor& self = iter.tensor(0);
    uint64_t range = 0;
    ISTHMUS_DISPATCH_NUMBERS(self.scalar_type(), "random_", [&] {
      if constexpr (std::is_integral_v<scalar_t>) {
        range = static_cast<uint64_t>(std::numeric_limits<scalar_t>::max()) + 1;
      } else {
        range = (uint64_t{1} << std::numeric_limits<scalar_t>::digits) + 1;
      }
    });
    if (range == 0) {  // the whole range of uint64
      RandomFromTo<void>()(iter, generator);
    } else {
      fill_integers(self, range, 0, generator);
    }
  }
};

inline uint64_t threshold(double p) {
  TORCH_CHECK(p >= 0 && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  return static_cast<uint64_t>(std::llrint(p * 0x1p32));
}

template <class>
struct Bernoulli {
  void operator()(const at::Tensor& self, double p, const GeneratorArgument& generator) {
    AT_DISPATCH_ALL_TYPES_AND3(at::kBool, at::kHalf, at::kBFloat16, self.scalar_type(), "bernoulli_", [&] {
      fill<uint32_t, scalar_t>(
          "aten::bernoulli_", self, generator,
          [limit = threshold(p)](uint32_t word, int64_t) { return static_cast<scalar_t>(word < limit); });
    });
  }
  void operator()(const at::Tensor& self, const at::Tensor& p, const GeneratorArgument& generator) {
    const at::Tensor expanded = p.to(self.device(), at::kDouble).expand(self.sizes()).cpu().contiguous();
    const double* probabilities = expanded.const_data_ptr<double>();
    AT_DISPATCH_ALL_TYPES_AND3(at::kBool, at::kHalf, at::kBFloat16, self.scalar_type(), "bernoulli_", [&] {
      fill<uint32_t, scalar_t>("aten::bernoulli_", self, generator, [=](uint32_t word, int64_t i) {
        return static_cast<scalar_t>(word < threshold(probabilities[i]));
      });
    });
  }
};

}  // namespace isthmus::random
