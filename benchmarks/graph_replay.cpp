// CPU's kernels on one element, called without the dispatcher, for graph_replay.py.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_softmax_cpu_dispatch.h>
#include <ATen/ops/add_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/mul_cpu_dispatch.h>
#include <ATen/ops/ones.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

// Seconds per call of a kernel; negative if there is none of the name.
extern "C" __attribute__((visibility("default"))) double seconds_per_call(const char* name, int64_t calls) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  static at::Tensor x = at::ones({1, 1});
  static const std::map<std::string, std::function<void()>> kernels{
      {"add", [] { at::cpu::add(x, x); }},
      {"add.out", [] { at::cpu::add_out(x, x, x); }},
      {"mul_", [] { at::cpu::mul_(x, x); }},
      {"mm", [] { at::cpu::mm(x, x); }},
      {"softmax", [] { at::cpu::_softmax(x, 1, false); }},
  };
  const auto found = kernels.find(name);
  if (found == kernels.end()) return -1;
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < calls; ++i) found->second();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
         static_cast<double>(calls);
}
