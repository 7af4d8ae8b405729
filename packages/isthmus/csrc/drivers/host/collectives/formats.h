// Number formats that C++17 lacks: halves and eighths as their bits, and complex numbers without the checks
// for infinities that std::complex makes. Conversions round to nearest, ties to even, and have no branch, so
// loops over them become vector code.
#pragma once

#include <cstdint>
#include <cstring>

namespace isthmus::host {

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

struct BFloat16 {
  uint16_t bits;

  explicit operator float() const { return float_of(static_cast<uint32_t>(bits) << 16); }

  static BFloat16 from(float value) {
    const uint32_t wide = bits_of(value);
    const uint32_t rounded = (wide + 0x7fff + ((wide >> 16) & 1)) >> 16;
    const bool is_nan = (wide & 0x7fffffff) > 0x7f800000;
    return {static_cast<uint16_t>(is_nan ? 0x7fc0 : rounded)};
  }
};

// Sign, exponent and mantissa in Bits. kInfinity is the infinity of the format, or its only NaN.
template <typename Bits, int kExponentBits, int kMantissaBits, uint32_t kInfinity, uint32_t kNan>
struct SmallFloat {
  Bits bits;

  explicit operator float() const {
    const uint32_t wide = bits;
    const uint32_t magnitude = wide & kMagnitude;
    const uint32_t normal = (magnitude << kShift) + (static_cast<uint32_t>(127 - kBias) << 23);
    const uint32_t subnormal = bits_of(float_of(kMagic | magnitude) - float_of(kMagic));
    uint32_t found = magnitude < (1u << kMantissaBits) ? subnormal : normal;
    if (magnitude >= kInfinity) found = kHasInfinity ? (magnitude << kShift) | 0x7f800000 : 0x7fc00000;
    return float_of(found | ((wide & ~kMagnitude) << (31 - kSign)));
  }

  static SmallFloat from(float value) {
    const uint32_t wide = bits_of(value);
    const uint32_t magnitude = wide & 0x7fffffff;
    // Adding a number whose last place is the format's smallest one rounds there.
    const uint32_t subnormal = bits_of(float_of(magnitude) + float_of(kMagic)) - kMagic;
    const uint32_t odd = (magnitude >> kShift) & 1;
    const uint32_t normal = ((magnitude + (1u << (kShift - 1)) - 1 + odd) >> kShift) -
                            (static_cast<uint32_t>(127 - kBias) << kMantissaBits);
    uint32_t found = magnitude < kSmallestNormal ? subnormal : normal;
    found = found < kOverflow ? found : kOverflow;
    found = magnitude > 0x7f800000 ? kNan : found;
    return {static_cast<Bits>(found | ((wide >> (31 - kSign)) & (1u << kSign)))};
  }

 private:
  static constexpr bool kHasInfinity = kInfinity != kNan;
  // Code for values beyond the largest, as in PyTorch: the infinity, or the largest.
  static constexpr uint32_t kOverflow = kHasInfinity ? kInfinity : kInfinity - 1;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kShift = 23 - kMantissaBits;
  static constexpr int kSign = kExponentBits + kMantissaBits;
  static constexpr uint32_t kMagnitude = (1u << kSign) - 1;
  static constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(127 + 1 - kBias) << 23;
  static constexpr uint32_t kMagic = static_cast<uint32_t>(127 + 1 - kBias - kMantissaBits + 23) << 23;
};

using Float16 = SmallFloat<uint16_t, 5, 10, 0x7c00, 0x7e00>;
using Float8E4M3 = SmallFloat<uint8_t, 4, 3, 0x7f, 0x7f>;
using Float8E5M2 = SmallFloat<uint8_t, 5, 2, 0x7c, 0x7f>;

template <typename T>
struct Complex {
  T real, imaginary;

  Complex operator+(Complex other) const { return {real + other.real, imaginary + other.imaginary}; }
  Complex operator*(Complex other) const {
    return {real * other.real - imaginary * other.imaginary, real * other.imaginary + imaginary * other.real};
  }
  Complex operator/(T divisor) const { return {real / divisor, imaginary / divisor}; }
};

// A byte of which any value but 0 is true.
struct Bool {
  uint8_t byte;
};

}  // namespace isthmus::host
