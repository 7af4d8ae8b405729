// Calls of aclnnAdd through the C interface, as torch_npu makes them, and of at::add_out; on one element.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/add.h>
#include <ATen/ops/ones.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" {
int aclInit(const char* configuration);
int aclrtSetDevice(int32_t device);
int aclrtCreateStream(void** stream);
int aclrtSynchronizeStream(void* stream);
int aclrtMalloc(void** pointer, size_t bytes, int policy);
void* aclCreateTensor(const int64_t* dims, uint64_t count, int type, const int64_t* strides, int64_t offset,
                      int format, const int64_t* storage, uint64_t storage_count, void* data);
void* aclCreateScalar(const void* value, int type);
int aclDestroyTensor(void* tensor);
int aclDestroyScalar(void* scalar);
int aclnnAddGetWorkspaceSize(void* self, void* other, void* alpha, void* out, uint64_t* size,
                             void** executor);
int aclnnAdd(void* workspace, uint64_t size, void* executor, void* stream);
}

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void require(int status) {
  if (status == 0) return;
  std::fprintf(stderr, "ascend_overhead: a call returned %d\n", status);
  std::exit(1);
}

struct Machine {
  void* stream = nullptr;
  void* memory[3] = {};

  Machine() {
    require(aclInit(nullptr));
    require(aclrtSetDevice(0));
    require(aclrtCreateStream(&stream));
    for (void*& pointer : memory) require(aclrtMalloc(&pointer, 512, 0));
  }

  void add() const {
    constexpr int kFloat = 0, kNd = 2;
    const int64_t one = 1;
    void* tensors[3];
    for (int i = 0; i < 3; ++i)
      tensors[i] = aclCreateTensor(&one, 1, kFloat, &one, 0, kNd, &one, 1, memory[i]);
    const float value = 1;
    void* const alpha = aclCreateScalar(&value, kFloat);
    uint64_t size = 0;
    void* executor = nullptr;
    require(aclnnAddGetWorkspaceSize(tensors[0], tensors[1], alpha, tensors[2], &size, &executor));
    for (void* tensor : tensors) require(aclDestroyTensor(tensor));
    require(aclDestroyScalar(alpha));
    require(aclnnAdd(nullptr, size, executor, stream));
  }
};

const Machine& machine() {
  static const Machine machine;
  return machine;
}

}  // namespace

// Seconds for a call; waits: with the end of the work, or until the last call has returned.
extern "C" double runtime_add(int64_t calls, bool waits) {
  const Machine& used = machine();
  require(aclrtSynchronizeStream(used.stream));
  const auto start = Clock::now();
  for (int64_t i = 0; i < calls; ++i) used.add();
  if (waits) require(aclrtSynchronizeStream(used.stream));
  return since(start) / static_cast<double>(calls);
}

extern "C" double aten_add(int64_t calls) {
  const at::AutoDispatchBelowADInplaceOrView no_gradients;
  const at::Tensor one = at::ones({1}), other = at::ones({1});
  at::Tensor out = at::ones({1});
  const auto start = Clock::now();
  for (int64_t i = 0; i < calls; ++i) at::add_out(out, one, other, 1);
  return since(start) / static_cast<double>(calls);
}
