// Random calls of the reference runtime of AscendCL from 8 threads, against a model of what each leaves in
// memory.
//
// ascend_fuzz SEED ROUNDS LIBOPAPI
//
// Every thread has a device buffer, two streams that events order, and a copy of the buffer in which it does
// the same at once; it compares them at each synchronisation. Threads 2k and 2k+1 are the two ranks of a
// communicator, and draw when to exchange from the same seed. All share one event, one stream and one model
// with a task group, which any of them uses, destroys and makes anew: a call may then fail with an invalid
// handle, and with nothing else. The operators' library is the package's, as PyTorch below it has no
// sanitizer either.
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <thread>
#include <vector>

extern "C" {
int aclInit(const char* configuration);
const char* aclGetRecentErrMsg();
int aclrtSetDevice(int32_t device);
int aclrtCreateStream(void** stream);
int aclrtDestroyStream(void* stream);
int aclrtSynchronizeStream(void* stream);
int aclrtStreamQuery(void* stream, int* status);
int aclrtCreateEvent(void** event);
int aclrtDestroyEvent(void* event);
int aclrtRecordEvent(void* event, void* stream);
int aclrtStreamWaitEvent(void* stream, void* event);
int aclrtQueryEventStatus(void* event, int* status);
int aclrtMalloc(void** pointer, size_t bytes, int policy);
int aclrtFree(void* pointer);
int aclrtMallocHost(void** pointer, size_t bytes);
int aclrtMemcpyAsync(void* to, size_t room, const void* from, size_t bytes, int kind, void* stream);
int aclrtMemsetAsync(void* pointer, size_t room, int32_t value, size_t bytes, void* stream);
int aclrtLaunchHostFunc(void* stream, void (*function)(void*), void* data);
int aclmdlRICaptureBegin(void* stream, int mode);
int aclmdlRICaptureEnd(void* stream, void** model);
int aclmdlRIExecuteAsync(void* model, void* stream);
int aclmdlRIDestroy(void* model);
int aclmdlRICaptureTaskGrpBegin(void* stream);
int aclmdlRICaptureTaskGrpEnd(void* stream, void** group);
int aclmdlRICaptureTaskUpdateBegin(void* stream, void* group);
int aclmdlRICaptureTaskUpdateEnd(void* stream);
int HcclGetRootInfo(void* info);
int HcclCommInitRootInfo(uint32_t size, const void* info, uint32_t rank, void** comm);
int HcclCommDestroy(void* comm);
int HcclAllReduce(void* from, void* to, uint64_t count, int dtype, int operation, void* comm, void* stream);
int HcclBroadcast(void* buffer, uint64_t count, int dtype, uint32_t root, void* comm, void* stream);
}

namespace {

constexpr int kThreads = 8, kInvalidHandle = 107017;
constexpr int kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3;
constexpr size_t kCount = 256, kPart = 64;  // numbers of a buffer, and of one operation
constexpr size_t kBytes = kCount * sizeof(int64_t), kPartBytes = kPart * sizeof(int64_t);

void require(bool holds, const char* what) {
  if (holds) return;
  const char* const message = aclGetRecentErrMsg();
  std::fprintf(stderr, "ascend_fuzz: %s: %s\n", what, message != nullptr ? message : "no message");
  std::_Exit(1);
}

#define CHECK(call) require((call) == 0, #call)

// Functions of libopapi.so.
struct Operators {
  void* (*tensor)(const int64_t* dims, uint64_t count, int type, const int64_t* strides, int64_t offset,
                  int format, const int64_t* storage, uint64_t storage_count, void* data);
  void* (*scalar)(const void* value, int type);
  int (*destroy_tensor)(void* tensor);
  int (*destroy_scalar)(void* scalar);
  int (*prepare_add)(void* self, void* other, void* alpha, void* out, uint64_t* size, void** executor);
  int (*add)(void* workspace, uint64_t size, void* executor, void* stream);

  explicit Operators(const char* path) {
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) std::fprintf(stderr, "ascend_fuzz: %s\n", dlerror());
    const auto find = [library](auto& function, const char* name) {
      void* const found = library != nullptr ? dlsym(library, name) : nullptr;
      require(found != nullptr, name);
      std::memcpy(&function, &found, sizeof(found));
    };
    find(tensor, "aclCreateTensor");
    find(scalar, "aclCreateScalar");
    find(destroy_tensor, "aclDestroyTensor");
    find(destroy_scalar, "aclDestroyScalar");
    find(prepare_add, "aclnnAddGetWorkspaceSize");
    find(add, "aclnnAdd");
  }
};

const Operators* operators;

// What threads share; the handle may be destroyed at any time.
std::atomic<void*> shared_event{nullptr}, shared_stream{nullptr}, shared_model{nullptr},
    shared_group{nullptr};
char root_infos[kThreads / 2][4108];

void require_or_destroyed(int status, const char* what) {
  require(status == 0 || status == kInvalidHandle, what);
}

// Adds to numbers of a device, on a stream; lives until the buffer is compared.
struct Addition {
  int64_t* numbers;
  int64_t value;
};

void add(void* data) {
  const Addition& addition = *static_cast<Addition*>(data);
  for (size_t i = 0; i < kPart; ++i) addition.numbers[i] += addition.value;
}

// The remainders of a division, so that numbers stay small.
void reduce(void* data) {
  const Addition& by = *static_cast<Addition*>(data);
  for (size_t i = 0; i < kPart; ++i) by.numbers[i] %= by.value;
}

void nothing(void*) {}

struct Captured {
  void *model, *group;
};

// A model whose work is a task group.
template <typename Enqueue>
Captured capture_group(void* stream, const Enqueue& enqueue) {
  Captured made{};
  CHECK(aclmdlRICaptureBegin(stream, 0));
  CHECK(aclmdlRICaptureTaskGrpBegin(stream));
  enqueue();
  CHECK(aclmdlRICaptureTaskGrpEnd(stream, &made.group));
  CHECK(aclmdlRICaptureEnd(stream, &made.model));
  return made;
}

class Worker {
 public:
  Worker(int index, uint64_t seed)
      : index_(index),
        device_(index % 2),
        random_(seed * 1000 + index),
        common_(seed * 77 + index / 2),
        model_(kCount) {
    CHECK(aclrtSetDevice(device_));
    CHECK(aclrtMalloc(reinterpret_cast<void**>(&numbers_), kBytes, 0));
    CHECK(aclrtMalloc(reinterpret_cast<void**>(&sums_), kBytes, 0));
    CHECK(aclrtMallocHost(reinterpret_cast<void**>(&pinned_), kBytes));
    for (void*& stream : streams_) CHECK(aclrtCreateStream(&stream));
    CHECK(aclrtCreateEvent(&event_));
    CHECK(HcclCommInitRootInfo(2, root_infos[index / 2], index % 2, &comm_));
    CHECK(aclrtMemsetAsync(numbers_, kBytes, 0, kBytes, streams_[0]));
  }

  void run(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      if (common_() % 16 == 0) exchange();
      step();
    }
    compare();
    CHECK(HcclCommDestroy(comm_));
    CHECK(aclrtDestroyEvent(event_));
    for (void* stream : streams_) CHECK(aclrtDestroyStream(stream));
    CHECK(aclrtFree(numbers_));
    CHECK(aclrtFree(sums_));
  }

 private:
  struct Places {
    size_t at, from;
  };

  void* stream() const { return streams_[current_]; }
  size_t start() { return random_() % (kCount - kPart + 1); }

  void step() {
    switch (random_() % 15) {
      case 0:
        return switch_stream();
      case 1:
        return compare();
      case 2:
        return fill();
      case 3:
        return upload();
      case 4:
        return move();
      case 5:
        return capture();
      case 6:
        return replace_event();
      case 7:
        return replace_stream();
      case 8:
        return use_shared();
      case 9:
        return allocate();
      case 10:
        return compute();
      case 11:
        return refused();
      case 12:
        return update();
      default:
        return launch();
    }
  }

  // What follows is after all so far, on the other stream.
  void switch_stream() {
    CHECK(aclrtRecordEvent(event_, stream()));
    current_ = 1 - current_;
    CHECK(aclrtStreamWaitEvent(stream(), event_));
  }

  void compare() {
    CHECK(aclrtMemcpyAsync(pinned_, kBytes, numbers_, kBytes, kDeviceToHost, stream()));
    CHECK(aclrtSynchronizeStream(stream()));
    require(std::memcmp(pinned_, model_.data(), kBytes) == 0, "the device's memory differs from the model's");
    additions_.clear();
  }

  void fill() {
    const size_t at = start();
    const int value = static_cast<int>(random_() % 3);
    CHECK(aclrtMemsetAsync(numbers_ + at, kPartBytes, value, kPartBytes, stream()));
    std::memset(&model_[at], value, kPartBytes);
  }

  // From pageable memory, which may be reused at once.
  void upload() {
    const size_t at = start();
    std::vector<int64_t> values(kPart);
    for (int64_t& value : values) value = static_cast<int64_t>(random_() % 1000);
    CHECK(aclrtMemcpyAsync(numbers_ + at, kPartBytes, values.data(), kPartBytes, kHostToDevice, stream()));
    std::memcpy(&model_[at], values.data(), kPartBytes);
  }

  void move() {
    const size_t from = random_() % 2 * kPart, to = kCount / 2 + random_() % 2 * kPart;
    CHECK(
        aclrtMemcpyAsync(numbers_ + to, kPartBytes, numbers_ + from, kPartBytes, kDeviceToDevice, stream()));
    std::memcpy(&model_[to], &model_[from], kPartBytes);
  }

  void launch() {
    const size_t at = start();
    const auto value = static_cast<int64_t>(random_() % 100);
    CHECK(aclrtLaunchHostFunc(stream(), add, &additions_.emplace_back(Addition{numbers_ + at, value})));
    for (size_t i = 0; i < kPart; ++i) model_[at + i] += value;
  }

  // Two additions, executed up to three times.
  void capture() {
    Addition* const both[] = {&additions_.emplace_back(Addition{numbers_ + start(), 3}),
                              &additions_.emplace_back(Addition{numbers_ + start(), 5})};
    CHECK(aclmdlRICaptureBegin(stream(), 0));
    for (Addition* each : both) CHECK(aclrtLaunchHostFunc(stream(), add, each));
    void* model = nullptr;
    CHECK(aclmdlRICaptureEnd(stream(), &model));
    for (uint64_t times = random_() % 4; times != 0; --times) {
      CHECK(aclmdlRIExecuteAsync(model, stream()));
      for (const Addition* each : both)
        for (size_t i = 0; i < kPart; ++i)
          model_[static_cast<size_t>(each->numbers - numbers_) + i] += each->value;
    }
    CHECK(aclmdlRIDestroy(model));
  }

  // An operator in a task group, executed before and after an update of its arguments.
  void update() {
    const Places captured = draw_places(), updated = draw_places();
    const Captured made = capture_group(stream(), [&] { enqueue_compute(captured); });
    execute(made.model, captured);
    CHECK(aclmdlRICaptureTaskUpdateBegin(stream(), made.group));
    enqueue_compute(updated);
    CHECK(aclmdlRICaptureTaskUpdateEnd(stream()));
    execute(made.model, updated);
    CHECK(aclmdlRIDestroy(made.model));
  }

  void execute(void* model, const Places& places) {
    for (uint64_t times = random_() % 3; times != 0; --times) {
      CHECK(aclmdlRIExecuteAsync(model, stream()));
      compute_model(places);
    }
  }

  void replace_event() {
    CHECK(aclrtDestroyEvent(event_));
    CHECK(aclrtCreateEvent(&event_));
    int status = 0;
    require(aclrtQueryEventStatus(event_, &status) == 0 && status == 1, "a new event is not completed");
  }

  void replace_stream() {
    const int other = 1 - current_;
    CHECK(aclrtDestroyStream(streams_[other]));
    CHECK(aclrtCreateStream(&streams_[other]));
  }

  void use_shared() {
    void* const event = shared_event.load();
    void* const other = shared_stream.load();
    int status = 0;
    require_or_destroyed(aclrtRecordEvent(event, other), "aclrtRecordEvent");
    require_or_destroyed(aclrtStreamWaitEvent(stream(), event), "aclrtStreamWaitEvent");
    require_or_destroyed(aclrtStreamQuery(other, &status), "aclrtStreamQuery");
    use_shared_model();
    if (random_() % 8 != 0) return;
    void* made = nullptr;
    CHECK(aclrtCreateEvent(&made));
    require_or_destroyed(aclrtDestroyEvent(shared_event.exchange(made)), "aclrtDestroyEvent");
    CHECK(aclrtCreateStream(&made));
    require_or_destroyed(aclrtDestroyStream(shared_stream.exchange(made)), "aclrtDestroyStream");
  }

  void use_shared_model() {
    require_or_destroyed(aclmdlRIExecuteAsync(shared_model, stream()), "aclmdlRIExecuteAsync");
    const int status = aclmdlRICaptureTaskUpdateBegin(stream(), shared_group);
    require_or_destroyed(status, "aclmdlRICaptureTaskUpdateBegin");
    if (status == 0) {
      CHECK(aclrtLaunchHostFunc(stream(), nothing, nullptr));
      CHECK(aclmdlRICaptureTaskUpdateEnd(stream()));
    }
    if (random_() % 8 != 0) return;
    const Captured made =
        capture_group(stream(), [&] { CHECK(aclrtLaunchHostFunc(stream(), nothing, nullptr)); });
    shared_group = made.group;
    require_or_destroyed(aclmdlRIDestroy(shared_model.exchange(made.model)), "aclmdlRIDestroy");
  }

  void allocate() {
    void* memory = nullptr;
    CHECK(aclrtMalloc(&memory, 1 + random_() % 100'000, 0));
    CHECK(aclrtFree(memory));
    require(aclrtFree(memory) != 0, "memory was freed twice");
  }

  void* tensor_at(size_t at) {
    constexpr int kInt64 = 9, kNd = 2;
    const int64_t count = kPart, step = 1;
    return operators->tensor(&count, 1, kInt64, &step, 0, kNd, &count, 1, numbers_ + at);
  }

  void compute() {
    const Places places = draw_places();
    enqueue_compute(places);
    compute_model(places);
  }

  Places draw_places() { return {random_() % 2 * kPart, kCount / 2 + random_() % 2 * kPart}; }

  // numbers += 2 * others; the objects are destroyed between the phases.
  void enqueue_compute(const Places& places) {
    constexpr int kInt64 = 9;
    const int64_t two = 2;
    void *const to = tensor_at(places.at), *const other = tensor_at(places.from),
                *const alpha = operators->scalar(&two, kInt64);
    uint64_t size = 0;
    void* executor = nullptr;
    CHECK(operators->prepare_add(to, other, alpha, to, &size, &executor));
    for (void* object : {to, other}) CHECK(operators->destroy_tensor(object));
    CHECK(operators->destroy_scalar(alpha));
    CHECK(operators->add(nullptr, size, executor, stream()));
    require(operators->add(nullptr, size, executor, stream()) != 0, "an executor ran twice");
    additions_.push_back(Addition{numbers_ + places.at, 1 << 20});
    CHECK(aclrtLaunchHostFunc(stream(), reduce, &additions_.back()));
  }

  void compute_model(const Places& places) {
    for (size_t i = 0; i < kPart; ++i) model_[places.at + i] += 2 * model_[places.from + i];
    for (size_t i = 0; i < kPart; ++i) model_[places.at + i] %= 1 << 20;
  }

  // A tensor that was destroyed.
  void refused() {
    constexpr int kInvalid = 161002;
    void *const gone = tensor_at(0), *const lives = tensor_at(kPart);
    CHECK(operators->destroy_tensor(gone));
    uint64_t size = 0;
    void* executor = nullptr;
    require(operators->prepare_add(lives, gone, nullptr, lives, &size, &executor) == kInvalid,
            "a destroyed tensor was accepted");
    require(operators->destroy_tensor(gone) == kInvalid, "a tensor was destroyed twice");
    CHECK(operators->destroy_tensor(lives));
  }

  // Sums of both ranks' numbers, which are unlike; then rank 0's are everyone's.
  void exchange() {
    constexpr int kInt64 = 5, kSum = 0;
    const auto step = static_cast<int64_t>(common_() % 1000);
    std::vector<int64_t> values(kCount);
    for (size_t i = 0; i < kCount; ++i) values[i] = step + index_ % 2 * 10'000 + static_cast<int64_t>(i);
    CHECK(aclrtMemcpyAsync(sums_, kBytes, values.data(), kBytes, kHostToDevice, stream()));
    CHECK(HcclAllReduce(sums_, numbers_, kCount, kInt64, kSum, comm_, stream()));
    for (size_t i = 0; i < kCount; ++i) model_[i] = 2 * (step + static_cast<int64_t>(i)) + 10'000;
    CHECK(HcclBroadcast(sums_, kCount, kInt64, 0, comm_, stream()));
    CHECK(aclrtMemcpyAsync(numbers_, kPartBytes, sums_, kPartBytes, kDeviceToDevice, stream()));
    for (size_t i = 0; i < kPart; ++i) model_[i] = step + static_cast<int64_t>(i);
  }

  const int index_, device_;
  std::mt19937_64 random_, common_;
  int64_t *numbers_ = nullptr, *sums_ = nullptr, *pinned_ = nullptr;
  void *streams_[2] = {}, *event_ = nullptr, *comm_ = nullptr;
  int current_ = 0;
  std::deque<Addition> additions_;
  std::vector<int64_t> model_;
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) return 2;
  const Operators loaded(arguments[3]);
  operators = &loaded;
  const uint64_t seed = std::strtoull(arguments[1], nullptr, 10);
  const int rounds = std::atoi(arguments[2]);
  CHECK(aclInit(nullptr));
  CHECK(aclrtSetDevice(0));
  void* made = nullptr;
  CHECK(aclrtCreateEvent(&made));
  shared_event = made;
  CHECK(aclrtCreateStream(&made));
  shared_stream = made;
  const Captured captured = capture_group(made, [&] { CHECK(aclrtLaunchHostFunc(made, nothing, nullptr)); });
  shared_model = captured.model;
  shared_group = captured.group;
  for (auto& info : root_infos) CHECK(HcclGetRootInfo(info));
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back([=] { Worker(i, seed).run(rounds); });
  for (auto& thread : threads) thread.join();
  return 0;
}
