#include "drivers/host/collectives/conversions.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace isthmus::host {
namespace {

template <typename T>
inline __attribute__((always_inline)) void widen_each(float* __restrict to, const T* __restrict from,
                                                      size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

template <typename T>
inline __attribute__((always_inline)) void narrow_each(T* __restrict to, const float* __restrict from,
                                                       size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = T::from(from[i]);
}

// All values of a format of 8 bits.
template <typename T>
struct Table {
  float values[256];

  Table() {
    for (int bits = 0; bits < 256; ++bits) values[bits] = static_cast<float>(T{static_cast<uint8_t>(bits)});
  }
};

template <typename T>
void look_up(float* to, const T* from, size_t count) {
  static const Table<T> table;
  for (size_t i = 0; i < count; ++i) to[i] = table.values[from[i].bits];
}

#if defined(__x86_64__)
constexpr size_t kLanes = 8;

bool has_avx2() noexcept {
  static const bool found = __builtin_cpu_supports("avx2") != 0;
  return found;
}

bool has_f16c() noexcept {
  static const bool found = __builtin_cpu_supports("f16c") != 0 && __builtin_cpu_supports("avx") != 0;
  return found;
}

__attribute__((target("avx2"))) void narrow_by_avx2(BFloat16* to, const float* from, size_t count) {
  narrow_each(to, from, count);
}

__attribute__((target("avx2"))) void widen_by_avx2(float* to, const BFloat16* from, size_t count) {
  widen_each(to, from, count);
}

// Converts whole vectors only; returns the number of converted elements.
__attribute__((target("avx,f16c"))) size_t widen_by_f16c(float* to, const Float16* from, size_t count) {
  size_t done = 0;
  for (; done + kLanes <= count; done += kLanes) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + done));
    _mm256_storeu_ps(to + done, _mm256_cvtph_ps(halves));
  }
  return done;
}

__attribute__((target("avx,f16c"))) size_t narrow_by_f16c(Float16* to, const float* from, size_t count) {
  size_t done = 0;
  for (; done + kLanes <= count; done += kLanes) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + done), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + done), halves);
  }
  return done;
}
#endif

}  // namespace

void widen(float* to, const Float16* from, size_t count) noexcept {
  size_t done = 0;
#if defined(__x86_64__)
  if (has_f16c()) done = widen_by_f16c(to, from, count);
#endif
  widen_each(to + done, from + done, count - done);
}

void widen(float* to, const BFloat16* from, size_t count) noexcept {
#if defined(__x86_64__)
  if (has_avx2()) return widen_by_avx2(to, from, count);
#endif
  widen_each(to, from, count);
}

void widen(float* to, const Float8E4M3* from, size_t count) noexcept { look_up(to, from, count); }

void widen(float* to, const Float8E5M2* from, size_t count) noexcept { look_up(to, from, count); }

void narrow(Float16* to, const float* from, size_t count) noexcept {
  size_t done = 0;
#if defined(__x86_64__)
  if (has_f16c()) done = narrow_by_f16c(to, from, count);
#endif
  narrow_each(to + done, from + done, count - done);
}

void narrow(BFloat16* to, const float* from, size_t count) noexcept {
#if defined(__x86_64__)
  if (has_avx2()) return narrow_by_avx2(to, from, count);
#endif
  narrow_each(to, from, count);
}

void narrow(Float8E4M3* to, const float* from, size_t count) noexcept { narrow_each(to, from, count); }

void narrow(Float8E5M2* to, const float* from, size_t count) noexcept { narrow_each(to, from, count); }

}  // namespace isthmus::host
