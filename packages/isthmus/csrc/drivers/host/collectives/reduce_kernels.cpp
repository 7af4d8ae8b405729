#include "drivers/host/collectives/reduce_kernels.h"

#include <iterator>
#include <type_traits>

#include "drivers/host/collectives/conversions.h"

namespace isthmus::host {
namespace {

template <typename T>
constexpr bool is_small_float = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16> ||
                                std::is_same_v<T, Float8E4M3> || std::is_same_v<T, Float8E5M2>;
template <typename T>
constexpr bool is_complex = std::is_same_v<T, Complex<float>> || std::is_same_v<T, Complex<double>>;

// Sums and products of integers wrap around: unsigned, and too wide to be promoted to int.
template <typename T>
using Wrapping = std::make_unsigned_t<std::conditional_t<sizeof(T) < sizeof(uint32_t), uint32_t, T>>;

struct Sum {
  template <typename A>
  static A apply(A a, A b) {
    if constexpr (std::is_integral_v<A>) {
      return static_cast<A>(static_cast<Wrapping<A>>(a) + static_cast<Wrapping<A>>(b));
    } else {
      return a + b;
    }
  }
};
struct Product {
  template <typename A>
  static A apply(A a, A b) {
    if constexpr (std::is_integral_v<A>) {
      return static_cast<A>(static_cast<Wrapping<A>>(a) * static_cast<Wrapping<A>>(b));
    } else {
      return a * b;
    }
  }
};
struct Min {
  template <typename A>
  static A apply(A a, A b) {
    const A less = a < b ? a : b;
    return a != a ? a : less;
  }
};
struct Max {
  template <typename A>
  static A apply(A a, A b) {
    const A greater = a > b ? a : b;
    return a != a ? a : greater;
  }
};
struct And {
  template <typename A>
  static A apply(A a, A b) {
    return static_cast<A>(a & b);
  }
};
struct Or {
  template <typename A>
  static A apply(A a, A b) {
    return static_cast<A>(a | b);
  }
};
struct Xor {
  template <typename A>
  static A apply(A a, A b) {
    return static_cast<A>(a ^ b);
  }
};
// Reductions of bools, on 0 and 1.
template <typename Bits>
struct Logical {
  static Bool apply(Bool a, Bool b) {
    return {Bits::template apply<uint8_t>(a.byte != 0 ? 1 : 0, b.byte != 0 ? 1 : 0)};
  }
};

enum class Scaling { kNone, kAverage, kFactor };

// Reduces accumulators, which for most dtypes are the elements themselves.
template <typename A, typename Op, Scaling kScaling>
struct Arithmetic {
  static A scale(A value, A factor) {
    (void)factor;
    if constexpr (kScaling == Scaling::kFactor) return Product::apply(value, factor);
    return value;
  }

  static void load(A* __restrict to, const A* from, size_t count, A factor) {
    for (size_t i = 0; i < count; ++i) to[i] = scale(from[i], factor);
  }

  static void accumulate(A* __restrict to, const A* from, size_t count, A factor) {
    for (size_t i = 0; i < count; ++i) to[i] = Op::apply(to[i], scale(from[i], factor));
  }

  // to may be a or b.
  static void combine(A* to, const A* a, const A* b, size_t count) {
    for (size_t i = 0; i < count; ++i) to[i] = Op::apply(a[i], b[i]);
  }

  static void divide(A* __restrict to, const A* from, size_t count, int32_t divisor) {
    for (size_t i = 0; i < count; ++i) {
      if constexpr (kScaling != Scaling::kAverage) {
        to[i] = from[i];
      } else if constexpr (is_complex<A>) {
        to[i] = from[i] / static_cast<decltype(A::real)>(divisor);
      } else {
        to[i] = from[i] / static_cast<A>(divisor);
      }
    }
    (void)divisor;
  }
};

template <typename T, typename Op, Scaling kScaling>
struct Reduction {
  using Compute = Arithmetic<T, Op, kScaling>;

  static T factor_of(const void* factor) {
    return kScaling == Scaling::kFactor ? *static_cast<const T*>(factor) : T{};
  }

  static void load(void* accumulator, const void* elements, size_t count, const void* factor) {
    Compute::load(static_cast<T*>(accumulator), static_cast<const T*>(elements), count, factor_of(factor));
  }

  static void accumulate(void* accumulator, const void* elements, size_t count, const void* factor) {
    Compute::accumulate(static_cast<T*>(accumulator), static_cast<const T*>(elements), count,
                        factor_of(factor));
  }

  static void merge(void* accumulator, const void* other, size_t count) {
    auto* to = static_cast<T*>(accumulator);
    Compute::combine(to, to, static_cast<const T*>(other), count);
  }

  static void store(void* elements, const void* accumulator, size_t count, int32_t world_size) {
    Compute::divide(static_cast<T*>(elements), static_cast<const T*>(accumulator), count, world_size);
  }

  static void combine(void* to, const void* a, const void* b, size_t count) {
    Compute::combine(static_cast<T*>(to), static_cast<const T*>(a), static_cast<const T*>(b), count);
  }

  static constexpr Kernels kKernels = {
      sizeof(T), sizeof(T), load, accumulate, merge, store, kScaling == Scaling::kNone ? combine : nullptr};
};

// Elements that are converted at a time.
constexpr size_t kChunk = 512;

// Reduces formats of 16 and 8 bits, in float.
template <typename T, typename Op, Scaling kScaling>
struct WideReduction {
  using Compute = Arithmetic<float, Op, kScaling>;

  static float factor_of(const void* factor) {
    return kScaling == Scaling::kFactor ? static_cast<float>(*static_cast<const T*>(factor)) : 0;
  }

  // Calls body(first, count) for chunks.
  template <typename Body>
  static void for_each_chunk(size_t count, Body body) {
    for (size_t first = 0; first < count; first += kChunk) {
      body(first, count - first < kChunk ? count - first : kChunk);
    }
  }

  static void load(void* accumulator, const void* elements, size_t count, const void* factor) {
    auto* to = static_cast<float*>(accumulator);
    widen(to, static_cast<const T*>(elements), count);
    const float by = factor_of(factor);
    for (size_t i = 0; kScaling == Scaling::kFactor && i < count; ++i) to[i] *= by;
  }

  static void accumulate(void* accumulator, const void* elements, size_t count, const void* factor) {
    for_each_chunk(count, [&](size_t first, size_t some) {
      float wide[kChunk];
      widen(wide, static_cast<const T*>(elements) + first, some);
      Compute::accumulate(static_cast<float*>(accumulator) + first, wide, some, factor_of(factor));
    });
  }

  static void merge(void* accumulator, const void* other, size_t count) {
    auto* to = static_cast<float*>(accumulator);
    Compute::combine(to, to, static_cast<const float*>(other), count);
  }

  static void store(void* elements, const void* accumulator, size_t count, int32_t world_size) {
    for_each_chunk(count, [&](size_t first, size_t some) {
      float wide[kChunk];
      Compute::divide(wide, static_cast<const float*>(accumulator) + first, some, world_size);
      narrow(static_cast<T*>(elements) + first, wide, some);
    });
  }

  static void combine(void* to, const void* a, const void* b, size_t count) {
    for_each_chunk(count, [&](size_t first, size_t some) {
      float left[kChunk], right[kChunk];
      widen(left, static_cast<const T*>(a) + first, some);
      widen(right, static_cast<const T*>(b) + first, some);
      Compute::accumulate(left, right, some, 0);
      narrow(static_cast<T*>(to) + first, left, some);
    });
  }

  static constexpr Kernels kKernels = {sizeof(T),
                                       sizeof(float),
                                       load,
                                       accumulate,
                                       merge,
                                       store,
                                       kScaling == Scaling::kNone ? combine : nullptr};
};

template <typename T, typename Op, Scaling kScaling = Scaling::kNone>
const Kernels* kernels() {
  if constexpr (is_small_float<T>) {
    return &WideReduction<T, Op, kScaling>::kKernels;
  } else {
    return &Reduction<T, Op, kScaling>::kKernels;
  }
}

template <typename T>
const Kernels* of_integers(isthmus_reduce_op op) {
  switch (op) {
    case ISTHMUS_SUM:
      return kernels<T, Sum>();
    case ISTHMUS_PRODUCT:
      return kernels<T, Product>();
    case ISTHMUS_MIN:
      return kernels<T, Min>();
    case ISTHMUS_MAX:
      return kernels<T, Max>();
    case ISTHMUS_BAND:
      return kernels<T, And>();
    case ISTHMUS_BOR:
      return kernels<T, Or>();
    case ISTHMUS_BXOR:
      return kernels<T, Xor>();
    case ISTHMUS_PREMUL_SUM:
      return kernels<T, Sum, Scaling::kFactor>();
    default:
      return nullptr;
  }
}

template <typename T>
const Kernels* of_complex(isthmus_reduce_op op) {
  switch (op) {
    case ISTHMUS_SUM:
      return kernels<T, Sum>();
    case ISTHMUS_PRODUCT:
      return kernels<T, Product>();
    case ISTHMUS_AVG:
      return kernels<T, Sum, Scaling::kAverage>();
    case ISTHMUS_PREMUL_SUM:
      return kernels<T, Sum, Scaling::kFactor>();
    default:
      return nullptr;
  }
}

template <typename T>
const Kernels* of_floats(isthmus_reduce_op op) {
  switch (op) {
    case ISTHMUS_MIN:
      return kernels<T, Min>();
    case ISTHMUS_MAX:
      return kernels<T, Max>();
    default:
      return of_complex<T>(op);
  }
}

const Kernels* of_bools(isthmus_reduce_op op) {
  switch (op) {
    case ISTHMUS_SUM:
    case ISTHMUS_MAX:
    case ISTHMUS_BOR:
      return kernels<Bool, Logical<Or>>();
    case ISTHMUS_PRODUCT:
    case ISTHMUS_MIN:
    case ISTHMUS_BAND:
      return kernels<Bool, Logical<And>>();
    case ISTHMUS_BXOR:
      return kernels<Bool, Logical<Xor>>();
    default:
      return nullptr;
  }
}

struct Dtype {
  const char* name;
  const Kernels* (*find)(isthmus_reduce_op op);
};

// Indexed by isthmus_dtype.
constexpr Dtype kDtypes[] = {
    {"int8", of_integers<int8_t>},
    {"uint8", of_integers<uint8_t>},
    {"int16", of_integers<int16_t>},
    {"int32", of_integers<int32_t>},
    {"int64", of_integers<int64_t>},
    {"float16", of_floats<Float16>},
    {"bfloat16", of_floats<BFloat16>},
    {"float32", of_floats<float>},
    {"float64", of_floats<double>},
    {"bool", of_bools},
    {"uint16", of_integers<uint16_t>},
    {"uint32", of_integers<uint32_t>},
    {"uint64", of_integers<uint64_t>},
    {"complex64", of_complex<Complex<float>>},
    {"complex128", of_complex<Complex<double>>},
    {"float8_e4m3fn", of_floats<Float8E4M3>},
    {"float8_e5m2", of_floats<Float8E5M2>},
};
constexpr const char* kReduceOps[] = {"sum",  "product", "min",  "max",       "avg",
                                      "band", "bor",     "bxor", "premul_sum"};

const Dtype* find_dtype(isthmus_dtype dtype) noexcept {
  const auto index = static_cast<size_t>(dtype);
  return index < std::size(kDtypes) ? &kDtypes[index] : nullptr;
}

}  // namespace

const char* dtype_name(isthmus_dtype dtype) noexcept {
  const Dtype* found = find_dtype(dtype);
  return found != nullptr ? found->name : "unknown dtype";
}

const char* reduce_op_name(isthmus_reduce_op op) noexcept {
  const auto index = static_cast<size_t>(op);
  return index < std::size(kReduceOps) ? kReduceOps[index] : "unknown reduction";
}

const Kernels* find_kernels(isthmus_dtype dtype, isthmus_reduce_op op) noexcept {
  const Dtype* found = find_dtype(dtype);
  return found != nullptr ? found->find(op) : nullptr;
}

}  // namespace isthmus::host
