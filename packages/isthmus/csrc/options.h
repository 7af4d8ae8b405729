// Options: environment variables, parsed and checked. Needs nothing but the standard library. A package
// writes the names, defaults and limits of its own with `python -m isthmus_common.options_header module`.
#pragma once

#include <locale.h>

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace isthmus::options {

struct Switch {
  const char* variable;
  bool initial;
};
struct Integer {
  const char* variable;
  int64_t initial, least, most;
};
struct Size {  // bytes
  const char* variable;
  uint64_t initial, least, most;
};
struct Text {
  const char* variable;
  const char* initial;
};
struct Choice {
  const char* variable;
  const char* initial;
  size_t count;
  const char* values[4];
};

// A wrong value. The message is one line: the variable, its value, and what to set.
struct Error : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// The value of an environment variable; empty if it is unset.
inline std::string_view value_of(const char* variable) noexcept {
  const char* value = std::getenv(variable);
  return value == nullptr ? std::string_view() : value;
}

namespace detail {

[[noreturn]] inline void refuse(const char* variable, const std::string& problem) {
  throw Error(std::string(variable) + "=" + std::string(value_of(variable)) + ": " + problem);
}

inline std::string limits(const std::string& least, const std::string& most, bool is_bounded) {
  return is_bounded ? "from " + least + " to " + most : "of at least " + least;
}

// Bytes in a unit such as "MiB"; 0 if it is unknown.
inline double unit_bytes(std::string_view unit) {
  if (unit.empty() || unit == "B") return 1;
  constexpr std::string_view prefixes = "KMGT";
  const size_t power = prefixes.find(unit[0]);
  if (power == std::string_view::npos || unit.substr(1) != "iB") return 0;
  return std::ldexp(1.0, 10 * static_cast<int>(power + 1));
}

// Parses the decimal number that a text begins with, in any locale; returns the number of characters, 0 if
// there is none. std::from_chars does it too, but only since libstdc++ 11.
inline size_t parse_decimal(std::string_view text, double* number) {
  static const locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr);
  const std::string digits(text.substr(0, text.find_first_not_of("0123456789.")));
  char* end = nullptr;
  *number = strtod_l(digits.c_str(), &end, plain);
  return static_cast<size_t>(end - digits.c_str());
}

// Formats in the largest unit: "64TiB".
inline std::string size_text(uint64_t bytes) {
  constexpr const char* units[] = {"", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; unit < 4 && bytes % 1024 == 0 && bytes != 0; bytes /= 1024) ++unit;
  return std::to_string(bytes) + units[unit];
}

}  // namespace detail

// Each reader returns the default of a variable that is unset or empty, and throws Error for a wrong value.

inline bool read(const Switch& option) {
  const std::string_view value = value_of(option.variable);
  if (value.empty()) return option.initial;
  if (value != "0" && value != "1") detail::refuse(option.variable, "not a switch; set it to 0 or 1");
  return value == "1";
}

inline int64_t read(const Integer& option) {
  const std::string_view value = value_of(option.variable);
  if (value.empty()) return option.initial;
  int64_t number = 0;
  const char* end = value.data() + value.size();
  const auto result = std::from_chars(value.data(), end, number);
  if (result.ec != std::errc() || result.ptr != end || number < option.least || number > option.most)
    detail::refuse(option.variable, "not a whole number " + detail::limits(std::to_string(option.least),
                                                                           std::to_string(option.most),
                                                                           option.most != INT64_MAX));
  return number;
}

// Bytes.
inline uint64_t read(const Size& option) {
  const std::string_view value = value_of(option.variable);
  if (value.empty()) return option.initial;
  double number = 0;
  const size_t length = detail::parse_decimal(value, &number);
  const double bytes = number * detail::unit_bytes(value.substr(length));
  const bool is_size =
      length != 0 && bytes >= static_cast<double>(option.least) && bytes <= static_cast<double>(option.most);
  if (!is_size)
    detail::refuse(option.variable,
                   "not a size; set it to bytes or a number with KiB, MiB, GiB or TiB, " +
                       detail::limits(detail::size_text(option.least), detail::size_text(option.most), true) +
                       ", for example 8GiB");
  return static_cast<uint64_t>(bytes);
}

inline std::string read(const Text& option) {
  const std::string_view value = value_of(option.variable);
  return std::string(value.empty() ? option.initial : value);
}

inline std::string read(const Choice& option) {
  const std::string_view value = value_of(option.variable);
  if (value.empty()) return option.initial;
  std::string expected;
  for (size_t i = 0; i < option.count; ++i) {
    if (value == option.values[i]) return std::string(value);
    expected += (i == 0 ? "" : i + 1 == option.count ? " or " : ", ") + std::string(option.values[i]);
  }
  detail::refuse(option.variable, "unknown value; expected " + expected);
}

}  // namespace isthmus::options
