// A cache of keys or values in blocks, [blocks, block size, heads, features], whose features lie without
// gaps.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Float8_e4m3fn.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/pieces.h"

namespace isthmus::kernels {

template <typename T>
struct Cache {
  T* data;
  int64_t block, token, head;  // strides
  int64_t blocks, size;        // number of blocks, and of tokens in one

  static Cache of(const at::Tensor& tensor) {
    T* data;
    if constexpr (std::is_const_v<T>)
      data = tensor.const_data_ptr<std::remove_const_t<T>>();
    else
      data = tensor.mutable_data_ptr<T>();
    return {data, tensor.stride(0), tensor.stride(1), tensor.stride(2), tensor.size(0), tensor.size(1)};
  }

  T* at(int64_t number, int64_t offset, int64_t h) const {
    return data + number * block + offset * token + h * head;
  }
};

template <typename T>
inline constexpr bool is_quantized = std::is_same_v<T, at::Float8_e4m3fn> || std::is_same_v<T, int8_t>;

// Every value of float8_e4m3fn as float.
inline const std::array<float, 256>& float8_values() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> made;
    for (int i = 0; i < 256; ++i)
      made[i] = at::Float8_e4m3fn(static_cast<uint8_t>(i), at::Float8_e4m3fn::from_bits());
    return made;
  }();
  return values;
}

// A row in the type computed in.
template <typename T, typename W>
inline void widen(const T* from, int64_t count, W* to) {
  if constexpr (std::is_same_v<T, W>) {
    std::copy_n(from, count, to);
  } else if constexpr (std::is_same_v<T, int8_t>) {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<W>(from[i]);
  } else if constexpr (std::is_same_v<T, at::Float8_e4m3fn>) {
    const auto& values = float8_values();
    for (int64_t i = 0; i < count; ++i) to[i] = values[from[i].x];
  } else {
    for_pieces<T>(count, [&](int64_t i, int64_t n) {
      const auto piece = Piece<T>::load(from + i, n);
      Piece<W>{piece.low, piece.high}.store(to + i, n);
    });
  }
}

}  // namespace isthmus::kernels
