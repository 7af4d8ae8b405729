// Failures that ISTHMUS_ASCEND_FAULT injects: kind[:call[:function]], to test an application's recovery.
#include "faults.h"

#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "ascend_options.h"
#include "context.h"
#include "enqueue.h"
#include "failures.h"
#include "stream.h"

namespace isthmus::ascend {
namespace {

struct Kind {
  const char* name;
  int code;
  const char* functions;  // the default: a prefix of the names of functions that count and fail
  bool lasts;             // whether every later call of these functions fails too
  const char* message;
};

constexpr int kHang = -1;
constexpr int kLinkDown = 13;  // an HcclResult
constexpr Kind kKinds[] = {
    {"lost", kHeartbeatLost, "aclrt", true, "the device is lost"},
    {"ecc", kHbmEcc, "aclrtSynchronize", false, "HBM MULTI BIT ECC ERROR"},
    {"memory", kDeviceMemory, "aclrtSynchronize", false, "DEVICE MEM ERROR"},
    {"core", kAicoreException, "aclrtSynchronize", false, "the kernel of an operator failed"},
    {"oom", kOutOfMemory, "aclrtMalloc", true, "the device is out of memory"},
    {"hang", kHang, "isthmus_ascend_enqueue", false, ""},
    {"link", kLinkDown, "Hccl", true, "a link is down"},
};

struct Plan {
  const Kind* kind = nullptr;
  std::string functions;
  uint64_t number = 1;  // number of the call that fails first
  std::atomic<uint64_t> calls{0};

  Plan() {
    const std::string_view text = options::value_of(options::kAscendFault.variable);
    if (text.empty()) return;
    const size_t colon = text.find(':'), second = text.find(':', colon == text.npos ? colon : colon + 1);
    for (const Kind& each : kKinds)
      if (text.substr(0, colon) == each.name) kind = &each;
    if (kind == nullptr) refuse(text);
    functions = second == text.npos ? kind->functions : std::string(text.substr(second + 1));
    if (colon == text.npos) return;
    const std::string_view digits = text.substr(colon + 1, second == text.npos ? second : second - colon - 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || end != digits.data() + digits.size() || number == 0) refuse(text);
  }

  [[noreturn]] static void refuse(std::string_view text) {
    std::fprintf(stderr, "isthmus: %s=%.*s: not a fault; see `isthmus ascend fault --help`\n",
                 options::kAscendFault.variable, static_cast<int>(text.size()), text.data());
    std::_Exit(2);
  }

  bool strikes(const char* function) {
    if (std::strncmp(function, functions.c_str(), functions.size()) != 0) return false;
    const uint64_t call = ++calls;
    return kind->lasts ? call >= number : call == number;
  }
};

// Streams that hang; never destroyed, as their threads may outlive main().
struct Hang {
  std::mutex mutex;
  std::condition_variable changed;
  std::chrono::microseconds limit{std::chrono::seconds{547}};
  bool ended = false;
};

Hang& hang() {
  static Hang* const hang = new Hang;
  return *hang;
}

// Holds a stream of the device. The first whose time is over fails, and lets the others go on.
void hold(void* device) {
  std::unique_lock<std::mutex> lock(hang().mutex);
  if (hang().changed.wait_for(lock, hang().limit, [] { return hang().ended; })) return;
  hang().ended = true;
  hang().changed.notify_all();
  keep_failure(static_cast<int32_t>(reinterpret_cast<intptr_t>(device)),
               {kAicoreTimeout, "an operator did not end within " +
                                    std::to_string(hang().limit / std::chrono::milliseconds{1}) +
                                    " ms; aclrtSetOpExecuteTimeOut() sets the limit"});
}

int hold_streams() {
  return call("isthmus_ascend_fault", [] {
    const int32_t device = current_context()->device;
    for (const auto& stream : streams_of(device))
      check(chip().stream_host_function(stream->queue, hold, reinterpret_cast<void*>(intptr_t{device})));
  });
}

}  // namespace

void set_operator_limit(uint64_t microseconds) noexcept {
  const std::lock_guard<std::mutex> lock(hang().mutex);
  hang().limit = std::chrono::microseconds(microseconds);
}

void end_hang() noexcept {
  const std::lock_guard<std::mutex> lock(hang().mutex);
  hang().ended = true;
  hang().changed.notify_all();
}

}  // namespace isthmus::ascend

using namespace isthmus::ascend;

ISTHMUS_ASCEND_EXPORT int isthmus_ascend_fault(const char* function) {
  if (is_forked())
    return report(kRuntimeInternal, function,
                  "a process forked from one that has used a device cannot use devices; start it with the "
                  "'spawn' method");
  static Plan plan;
  if (__builtin_expect(plan.kind == nullptr, 1) || !plan.strikes(function)) return 0;
  if (plan.kind->code == kHang) return hold_streams();
  return report(plan.kind->code, function, plan.kind->message);
}
