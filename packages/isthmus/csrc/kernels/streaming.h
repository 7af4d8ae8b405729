// Memory that is read or written once: loads that prefetch what comes next, and stores that go past the
// caches, since a result larger than they are need not be read before it is written.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/pieces.h"

namespace isthmus::kernels {

// Below it, the next reader gains more by finding the result in a cache.
inline constexpr int64_t kStreamedBytes = int64_t(24) << 20;
inline constexpr int64_t kAheadBytes = 2048;
inline constexpr int64_t kCachedRowBytes = int64_t(128) << 10;

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

// Prefetches the memory of a piece. With loop bodies as long as in most kernels, the hardware prefetcher is
// too late. An address beyond the tensor is harmless.
template <typename T>
inline void prefetch(const T* piece) {
  constexpr int64_t kLine = 64, kBytes = Piece<T>::kSize * static_cast<int64_t>(sizeof(T));
  for (int64_t i = 0; i < kBytes; i += kLine) __builtin_prefetch(reinterpret_cast<const char*>(piece) + i);
}

// Loads data that is read once and in order.
template <typename T>
inline Piece<T> load_ahead(const T* from, int64_t count) {
  prefetch(from + kAheadBytes / sizeof(T));
  return Piece<T>::load(from, count);
}

// Prefetch distance, in elements, for a row of n that is read twice: applied at the second reading, so that
// the next row comes while this one is written.
template <typename T>
inline int64_t next_row(int64_t n) {
  return std::min<int64_t>(n, kCachedRowBytes / sizeof(T));
}

}  // namespace isthmus::kernels
