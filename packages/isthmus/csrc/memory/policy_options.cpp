// The text of PYTORCH_ALLOC_CONF and ISTHMUS_ALLOC_CONF.
#include <c10/util/Exception.h>

#include <cstdlib>
#include <map>
#include <set>

#include "memory/policy.h"

namespace isthmus::memory {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr double kLargestNumber = 1 << 30;  // MiB, or less

// Keys of other devices, in the variable that all share.
const std::set<std::string>& foreign_keys() {
  static const auto* const keys = new std::set<std::string>{"backend",
                                                            "pinned_use_cuda_host_register",
                                                            "pinned_num_register_threads",
                                                            "pinned_reserve_segment_size_mb",
                                                            "pinned_use_background_threads",
                                                            "release_lock_on_cudamalloc",
                                                            "release_lock_on_hipmalloc",
                                                            "graph_capture_record_stream_reuse",
                                                            "per_process_memory_fraction",
                                                            "large_segment_size_mb",
                                                            "pinned_max_round_threshold_mb",
                                                            "pinned_max_cached_size_mb",
                                                            "throw_on_cudamalloc_oom",
                                                            "pinned_use_hip_host_register"};
  return *keys;
}

[[noreturn]] void refuse(const std::string& item, const std::string& reason) {
  TORCH_CHECK_VALUE(false, "allocator option '", item, "': ", reason);
}

std::string trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t"), end = text.find_last_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

// Splits at separators outside brackets.
std::vector<std::string> split_at(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (char c : text) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == separator && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

double number(const std::string& item, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= 0 && value <= kLargestNumber))
    refuse(item, "'" + text + "' is not a number of at least 0");
  return value;
}

bool truth(const std::string& item, const std::string& text) {
  if (text == "True" || text == "true" || text == "1") return true;
  if (text == "False" || text == "false" || text == "0") return false;
  refuse(item, "'" + text + "' is neither True nor False");
}

size_t divisions(const std::string& item, const std::string& text) {
  const double value = number(item, text);
  const auto whole = static_cast<size_t>(value);
  if (static_cast<double>(whole) != value || (whole & (whole - 1)) != 0 || whole > 64)
    refuse(item, "'" + text + "' is not 0 or a power of two up to 64");
  return whole;
}

// 0 for sizes below 2 MiB, then one for each power of two, the last one for all that are larger.
size_t division_index(const std::string& item, const std::string& megabytes) {
  const auto limit = static_cast<size_t>(number(item, megabytes));
  if (limit == 0 || (limit & (limit - 1)) != 0) refuse(item, "'" + megabytes + "' is not a power of two");
  size_t index = 0;
  while ((size_t{2} << index) <= limit && index < 15) ++index;
  return index;
}

// One number for all sizes, or [256:1,512:2,>:4]: divisions by lower limit of the size in MiB; > means all
// larger sizes.
void parse_divisions(const std::string& item, const std::string& value, PolicyOptions& options) {
  if (value.empty() || value.front() != '[') {
    options.divisions.fill(divisions(item, value));
    return;
  }
  if (value.back() != ']') refuse(item, "the bracket is not closed");
  size_t next = 0, latest = 0;
  for (const std::string& entry : split_at(value.substr(1, value.size() - 2), ',')) {
    const size_t colon = entry.find(':');
    if (colon == std::string::npos) refuse(item, "'" + entry + "' is not size:divisions");
    const std::string size = trim(entry.substr(0, colon));
    latest = divisions(item, trim(entry.substr(colon + 1)));
    const size_t until = size == ">" ? options.divisions.size() : division_index(item, size) + 1;
    for (; next < until; ++next) options.divisions[next] = latest;
  }
  for (; next < options.divisions.size(); ++next) options.divisions[next] = latest;
}

void parse_item(const std::string& item, bool is_ours, PolicyOptions& options) {
  const size_t colon = item.find(':');
  if (colon == std::string::npos) refuse(item, "not key:value");
  const std::string key = trim(item.substr(0, colon)), value = trim(item.substr(colon + 1));
  if (key == "max_split_size_mb") {
    options.max_split = static_cast<size_t>(number(item, value)) * kMiB;
    if (options.max_split < 20 * kMiB) refuse(item, "less than 20");
  } else if (key == "max_non_split_rounding_mb") {
    options.max_rounding = static_cast<size_t>(number(item, value)) * kMiB;
  } else if (key == "garbage_collection_threshold") {
    options.collection_threshold = number(item, value);
    if (options.collection_threshold >= 1) refuse(item, "not below 1");
  } else if (key == "roundup_power2_divisions") {
    parse_divisions(item, value, options);
  } else if (key == "expandable_segments") {
    options.expandable = truth(item, value);
  } else if (is_ours || foreign_keys().count(key) == 0) {
    refuse(item,
           "unknown; expected max_split_size_mb, max_non_split_rounding_mb, garbage_collection_threshold, "
           "roundup_power2_divisions or expandable_segments");
  }
}

}  // namespace

PolicyOptions parse_options(const std::string& text, bool is_ours) {
  PolicyOptions options;
  for (const std::string& item : split_at(text, ','))
    if (!trim(item).empty()) parse_item(trim(item), is_ours, options);
  return options;
}

// Drops options that only "torch" reads, for rounding and splitting; garbage_collection_threshold is the
// owner's, whatever the policy.
std::vector<std::string> drop_unread_options(const std::string& policy, PolicyOptions& options) {
  if (policy == "torch") return {};
  const PolicyOptions defaults;
  std::vector<std::string> names;
  const auto drop = [&names](const char* name, auto& option, const auto& initial) {
    if (option == initial) return;
    option = initial;
    names.emplace_back(name);
  };
  drop("max_split_size_mb", options.max_split, defaults.max_split);
  drop("max_non_split_rounding_mb", options.max_rounding, defaults.max_rounding);
  drop("roundup_power2_divisions", options.divisions, defaults.divisions);
  drop("expandable_segments", options.expandable, defaults.expandable);
  return names;
}

}  // namespace isthmus::memory
