// Element types and their compute types: 16-bit floats in float, float32 in double, rounded once to nearest
// even when stored; integers and bool in int64_t.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "isthmus_ops.h"

namespace sample {

struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline float to_float(BFloat16 value) { return float_of(uint32_t{value.bits} << 16); }

inline BFloat16 to_bfloat16(float value) {
  const uint32_t bits = bits_of(value);
  if (value != value) return {static_cast<uint16_t>(bits >> 16 | 0x40)};  // rounding could make it infinite
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

// Multiplying by a power of two is exact, and turns subnormal 16-bit floats into normal floats.
inline float to_float(Float16 value) {
  const uint32_t sign = uint32_t{value.bits & 0x8000u} << 16;
  const uint32_t magnitude = value.bits & 0x7fffu;
  if (magnitude >= 0x7c00) return float_of(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  return float_of(sign | bits_of(float_of(magnitude << 13) * 0x1p112f));
}

inline Float16 to_float16(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return {static_cast<uint16_t>(sign | 0x7e00)};
  if (magnitude >= 0x477ff000)
    return {static_cast<uint16_t>(sign | 0x7c00)};  // 65520 and above round to infinity
  if (magnitude < 0x38800000) {  // subnormal: adding 0.5 aligns the last bits of both formats
    return {static_cast<uint16_t>(sign | (bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f)))};
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return {static_cast<uint16_t>(sign | (rounded - 0x38000000) >> 13)};
}

// Compute<T>: the compute type for elements of type T.
template <typename T>
using Compute = std::conditional_t<
    std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>, float,
    std::conditional_t<std::is_same_v<T, float> || std::is_same_v<T, double>, double, int64_t>>;

template <typename T>
Compute<T> load(T value) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
    return to_float(value);
  } else {
    return static_cast<Compute<T>>(value);
  }
}

template <typename T, typename Value>
T store(Value value) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return to_bfloat16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, Float16>) {
    return to_float16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, bool>) {
    return value != Value{0};
  } else {
    return static_cast<T>(value);
  }
}

template <typename Value>
Value number(isthmus_scalar scalar) {
  return scalar.kind == ISTHMUS_SCALAR_FLOAT || std::is_floating_point_v<Value>
             ? static_cast<Value>(scalar.as_double)
             : static_cast<Value>(scalar.as_int);
}

template <typename T>
constexpr DLDataType dtype_of() {
  constexpr uint8_t bits = sizeof(T) * 8;
  if constexpr (std::is_same_v<T, BFloat16>) return {kDLBfloat, bits, 1};
  if constexpr (std::is_same_v<T, Float16>) return {kDLFloat, bits, 1};
  if constexpr (std::is_same_v<T, bool>) return {kDLBool, bits, 1};
  if constexpr (std::is_floating_point_v<T>) return {kDLFloat, bits, 1};
  return {static_cast<uint8_t>(std::is_signed_v<T> ? kDLInt : kDLUInt), bits, 1};
}

// Calls body with a value of the element type, if it is one of Types.
template <typename... Types, typename Body>
isthmus_status among(const DLTensor* tensor, Body&& body) {
  isthmus_status status = ISTHMUS_UNSUPPORTED;
  const auto attempt = [&](auto type) {
    constexpr DLDataType candidate = dtype_of<decltype(type)>();
    if (tensor->dtype.code != candidate.code || tensor->dtype.bits != candidate.bits) return false;
    status = body(type);
    return true;
  };
  (attempt(Types{}) || ...);
  return status;
}

template <typename Body>
isthmus_status floats(const DLTensor* tensor, Body&& body) {
  return among<float, BFloat16, Float16>(tensor, body);
}

template <typename Body>
isthmus_status numbers(const DLTensor* tensor, Body&& body) {
  return among<float, BFloat16, Float16, int64_t>(tensor, body);
}

template <typename Body>
isthmus_status all_types(const DLTensor* tensor, Body&& body) {
  return among<float, BFloat16, Float16, int64_t, bool>(tensor, body);
}

// Runs the body for every dtype; for copies and fills only.
template <typename Body>
isthmus_status any_type(const DLTensor* tensor, Body&& body) {
  return among<float, BFloat16, Float16, int64_t, bool, double, int32_t, int16_t, int8_t, uint8_t>(tensor,
                                                                                                   body);
}

constexpr uint64_t kFloats = ISTHMUS_DTYPE(FLOAT32) | ISTHMUS_DTYPE(BFLOAT16) | ISTHMUS_DTYPE(FLOAT16);
constexpr uint64_t kNumbers = kFloats | ISTHMUS_DTYPE(INT64);
constexpr uint64_t kFloatsAndMask = kFloats | ISTHMUS_DTYPE(BOOL);
constexpr uint64_t kAll = kNumbers | ISTHMUS_DTYPE(BOOL);
constexpr uint64_t kCopied = kAll | ISTHMUS_DTYPE(FLOAT64) | ISTHMUS_DTYPE(INT32) | ISTHMUS_DTYPE(INT16) |
                             ISTHMUS_DTYPE(INT8) | ISTHMUS_DTYPE(UINT8);

// Every kernel of this chip computes in the calling thread.
constexpr uint32_t kContiguous = ISTHMUS_OPERATOR_HOST;
constexpr uint32_t kStrided = ISTHMUS_OPERATOR_HOST | ISTHMUS_OPERATOR_STRIDED;
constexpr uint32_t kPointwise = kStrided | ISTHMUS_OPERATOR_IN_PLACE;

}  // namespace sample
