#include "opapi/support.h"

#include <c10/util/StringUtil.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>

#include "acl/enqueue.h"
#include "opapi/products.h"

extern "C" const char* aclrtGetSocName();

namespace isthmus::ascend {
namespace {

// Number of the aclDataType of each dtype, -1 if it has none.
int data_type_of(at::ScalarType dtype) {
  static const auto numbers = [] {
    std::array<int, 128> found;
    found.fill(-1);
    for (int i = 0; i < 64; ++i)
      if (const auto known = scalar_type_of(i)) found[static_cast<size_t>(*known)] = i;
    return found;
  }();
  return numbers[static_cast<size_t>(dtype)];
}

const char* data_type_name(int data_type) {
  static const auto names = [] {
    std::array<const char*, 64> found{};
    for (size_t i = 0; i < kDataTypeCount; ++i) found[kDataTypes[i].number] = kDataTypes[i].name;
    return found;
  }();
  const char* const name = data_type < 0 ? nullptr : names[static_cast<size_t>(data_type)];
  return name ? name : "DT_UNDEFINED";
}

// A tensor that the row does not accept; empty if it does.
std::string refusal_of(const Limit& limit, const std::string& name, const Descriptor& tensor) {
  const auto sizes = tensor.layout.sizes_arrayref();
  const auto rank = static_cast<int64_t>(sizes.size());
  switch (limit.kind) {
    case Limit::kDtypes: {
      const int found = data_type_of(tensor.dtype);
      if (found >= 0 && (limit.dtypes >> found & 1) != 0) return {};
      return c10::str(name, " not implemented for ", data_type_name(found),
                      ", should be in dtype support list [", limit.accepted, "].");
    }
    case Limit::kRank:
      if (rank >= limit.least && rank <= limit.most) return {};
      return c10::str(name, " has ", rank, " dimensions, expected ", limit.least, " to ", limit.most, ".");
    case Limit::kFilled:
      if (std::find(sizes.begin(), sizes.end(), 0) == sizes.end()) return {};
      return c10::str(name, " of shape ", sizes, " is empty, which is not supported.");
    default:
      return {};
  }
}

// The time and process before a card's message.
std::string prefix() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() % 1000000;
  std::tm parts{};
  localtime_r(&seconds, &parts);
  char day[32], text[96];
  std::strftime(day, sizeof day, "%Y-%m-%d-%H:%M:%S", &parts);
  std::snprintf(text, sizeof text, "EZ1001: [PID: %d] %s.%03d.%03d ", static_cast<int>(getpid()), day,
                static_cast<int>(micros / 1000), static_cast<int>(micros % 1000));
  return text;
}

std::string refusal_of(const Limit& limit, const Program& program, c10::ArrayRef<c10::IValue> arguments,
                       c10::ArrayRef<GivenTensor> tensors) {
  if (limit.kind == Limit::kProducts)
    return c10::str("aclnn", program.name(),
                    " is not supported on this product; products that have it: ", limit.accepted, ".");
  const auto& parameters = program.parameters();
  if (limit.kind == Limit::kRange) {
    const c10::IValue& given = arguments[static_cast<size_t>(limit.parameter)];
    if (!given.isInt() || (given.toInt() >= limit.least && given.toInt() <= limit.most)) return {};
    return c10::str(parameters[static_cast<size_t>(limit.parameter)].name, " is ", given.toInt(),
                    ", expected ", limit.least, " to ", limit.most, ".");
  }
  for (const auto& [parameter, tensor] : tensors) {
    if (tensor->dtype == at::ScalarType::Undefined) continue;
    if (limit.parameter >= 0 && parameter != static_cast<size_t>(limit.parameter)) continue;
    std::string refused = refusal_of(limit, parameters[parameter].name, *tensor);
    if (!refused.empty()) return refused;
  }
  return {};
}

}  // namespace

const char* dtype_name(at::ScalarType dtype) { return data_type_name(data_type_of(dtype)); }

std::string unsupported(int row, const Program& program, c10::ArrayRef<c10::IValue> arguments,
                        c10::ArrayRef<GivenTensor> tensors) {
  static const uint32_t series = uint32_t{1} << isthmus_ascend_series();
  const auto before = [](const Limit& limit, int wanted) { return limit.row < wanted; };
  const Limit* const end = kLimits + kLimitCount;
  for (const int wanted : {-1, row}) {
    for (const Limit* limit = std::lower_bound(kLimits, end, wanted, before);
         limit != end && limit->row == wanted; ++limit) {
      if ((limit->series & series) == 0) continue;
      const std::string refused = refusal_of(*limit, program, arguments, tensors);
      if (!refused.empty())
        return c10::str(prefix(), refused, " (", aclrtGetSocName(), "; ", limit->source, ")");
    }
  }
  return {};
}

}  // namespace isthmus::ascend
