// Stores that go past the caches: a result larger than they are need not be read before it is written.
#pragma once

#include <cstdint>

#include "kernels/pieces.h"

namespace isthmus::kernels {

inline constexpr int64_t kStreamedBytes = int64_t(8) << 20;

#if defined(CPU_CAPABILITY_AVX512)
inline constexpr uintptr_t kStreamAlignment = 64;

inline void stream(float* to, const Vectorized<float>& from) { _mm512_stream_ps(to, from); }
inline void stream(double* to, const Vectorized<double>& from) { _mm512_stream_pd(to, from); }
template <typename Half>
inline void stream(Half* to, const Vectorized<Half>& from) {
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), from);
}
inline void end_of_stream() { _mm_sfence(); }
#elif defined(CPU_CAPABILITY_AVX2)
inline constexpr uintptr_t kStreamAlignment = 32;

inline void stream(float* to, const Vectorized<float>& from) { _mm256_stream_ps(to, from); }
inline void stream(double* to, const Vectorized<double>& from) { _mm256_stream_pd(to, from); }
template <typename Half>
inline void stream(Half* to, const Vectorized<Half>& from) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), from);
}
inline void end_of_stream() { _mm_sfence(); }
#else
inline constexpr uintptr_t kStreamAlignment = 1;

template <typename T>
inline void stream(T* to, const Vectorized<T>& from) {
  from.store(to);
}
inline void end_of_stream() {}
#endif

// Stores a piece, past the caches if asked and if it is a whole one; `to` is then aligned.
template <bool kStream, typename T>
inline void put(const Piece<T>& piece, T* to, int64_t count) {
  if (!kStream || count != Piece<T>::kSize) {
    piece.store(to, count);
  } else if constexpr (is_half<T>) {
    stream(to, at::vec::convert_from_float<T>(piece.low, piece.high));
  } else {
    stream(to, piece.low);
    stream(to + Piece<T>::Vector::size(), piece.high);
  }
}

template <typename T>
inline bool is_aligned(const T* to) {
  return reinterpret_cast<uintptr_t>(to) % kStreamAlignment == 0;
}

}  // namespace isthmus::kernels
