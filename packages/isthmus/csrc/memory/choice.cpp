#include "memory/choice.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <cstdlib>
#include <map>
#include <mutex>

#include "core/cuda_answers.h"
#include "core/runtime.h"
#include "isthmus_options.h"
#include "memory/device_memory.h"

namespace isthmus::memory {
namespace {

constexpr const char* kVariable = options::kAllocator.variable;
constexpr int kAll = -1;

struct Choice {
  std::string name, options;
};

struct Choices {
  std::mutex mutex;
  std::map<int, Choice> by_device;
};

Choices& choices() {
  static auto* const instance = new Choices;
  return *instance;
}

// The device of an entry's "chip:0" or "0"; kAll if it names none.
int device_of(const std::string& which) {
  const std::string digits = which.rfind("chip:", 0) == 0 ? which.substr(5) : which;
  TORCH_CHECK_VALUE(
      !digits.empty() && digits.size() <= 2 && digits.find_first_not_of("0123456789") == std::string::npos,
      kVariable, ": '", which, "' is not a device; write chip:0=torch,planned");
  return std::stoi(digits);
}

// The entry of this device, or of all devices, in a text such as "chip:1=bf,planned".
std::string of_variable(c10::DeviceIndex device) {
  std::map<int, std::string> names;
  std::string rest = options::read(options::kAllocator) + ',';
  for (size_t comma = rest.find(','); comma != std::string::npos; comma = rest.find(',')) {
    const std::string entry = rest.substr(0, comma);
    rest = rest.substr(comma + 1);
    const size_t equals = entry.find('=');
    const bool is_for_all = equals == std::string::npos;
    const std::string name = is_for_all ? entry : entry.substr(equals + 1);
    check_policy_name(name, std::string(kVariable) + ": ");
    const int which = is_for_all ? kAll : device_of(entry.substr(0, equals));
    TORCH_CHECK_VALUE(names.emplace(which, name).second, kVariable, ": '", entry,
                      "' is the second entry for ", is_for_all ? "all devices" : entry.substr(0, equals),
                      "; remove one");
  }
  for (const int key : {int{device}, kAll})
    if (const auto found = names.find(key); found != names.end()) return found->second;
  return options::kAllocator.initial;
}

Choice make_choice(c10::DeviceIndex device) {
  Choices& all = choices();
  std::lock_guard<std::mutex> guard(all.mutex);
  for (const int key : {int{device}, kAll}) {
    const auto found = all.by_device.find(key);
    if (found != all.by_device.end()) return found->second;
  }
  return {};
}

}  // namespace

std::string chosen_policy(c10::DeviceIndex device) {
  const std::string name = make_choice(device).name;
  return name.empty() ? of_variable(device) : name;
}

PolicyOptions chosen_options(c10::DeviceIndex device) {
  PolicyOptions options;
  const std::string own = make_choice(device).options;
  const std::string ours = options::read(options::kAllocConf);
  const char* shared = std::getenv("PYTORCH_ALLOC_CONF");
  if (shared == nullptr)
    shared = std::getenv("PYTORCH_CUDA_ALLOC_CONF");  // the older name, still in many jobs
  if (!own.empty()) {
    options = parse_options(own, /*is_ours=*/true);
  } else if (!ours.empty()) {
    options = parse_options(ours, /*is_ours=*/true);
  } else if (shared != nullptr) {
    options = parse_options(shared, /*is_ours=*/false);
  }
  const std::string policy = chosen_policy(device);
  const std::vector<std::string> unread = drop_unread_options(policy, options);
  // A script for CUDA that sets options of CUDA's allocator has nothing to change.
  const bool for_cuda = own.empty() && ours.empty() && uses_cuda_words();
  if (!unread.empty() && !for_cuda) {
    TORCH_WARN_ONCE("chip: allocator '", policy, "' ignores ", c10::Join(", ", unread),
                    ": set ISTHMUS_ALLOCATOR=torch to use it, or remove it");
  }
  if (!options.expandable) return options;
  use_device(device);
  if (!ISTHMUS_HAS(driver(), virtual_granularity)) {
    if (!for_cuda) {
      TORCH_WARN_ONCE("chip: expandable_segments is ignored: driver '", driver().name,
                      "' has no virtual memory");
    }
    options.expandable = false;
    return options;
  }
  check(driver().virtual_granularity(&options.mapping_granule), "virtual_granularity");
  options.expandable_bytes =
      round_to(free_and_total(device).second, round_to(size_t{20} << 20, options.mapping_granule));
  return options;
}

void choose_policy(int device, const std::string& name, const std::string& options) {
  if (!name.empty()) check_policy_name(name, "allocator: ");
  parse_options(options, /*is_ours=*/true);
  for (int each = 0; each < kMaxDevices; ++each) {
    TORCH_CHECK((device != kAll && device != each) ||
                    used_device_memory(static_cast<c10::DeviceIndex>(each)) == nullptr,
                "chip ", each, " has allocated memory already; choose its allocator before the first tensor");
  }
  Choices& all = choices();
  std::lock_guard<std::mutex> guard(all.mutex);
  all.by_device[device] = {name, options};
}

}  // namespace isthmus::memory
