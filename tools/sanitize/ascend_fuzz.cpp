// Random calls of the reference runtime of AscendCL from 8 threads, against a model of what each leaves in
// memory.
//
// ascend_fuzz SEED ROUNDS LIBOPAPI
//
// Every thread has a device buffer, two streams that events order, and a copy of the buffer in which it does
// the same at once; it compares them at each synchronisation. Threads 2k and 2k+1 are the two ranks of a
// communicator, and draw when to exchange from the same seed. All share one event, one stream and one model
// with a task group, which any of them uses, destroys and makes anew: a call may then fail with an invalid
// handle, and with nothing else. They share one more stream, which any of them captures while the others
// enqueue work. With ISTHMUS_ASCEND_FAULT the program ends at the first call that fails. The operators'
// library is the package's, as PyTorch below it has no sanitizer either.
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
int aclrtSetOpExecuteTimeOutV2(uint64_t microseconds, uint64_t* actual);
int aclrtCreateEventExWithFlag(void** event, uint32_t flags);
int aclrtDestroyEvent(void* event);
int aclrtRecordEvent(void* event, void* stream);
int aclrtStreamWaitEvent(void* stream, void* event);
int aclrtQueryEventStatus(void* event, int* status);
int aclrtMalloc(void** pointer, size_t bytes, int policy);
int aclrtFree(void* pointer);
int aclrtMallocHost(void** pointer, size_t bytes);
int aclrtMemcpyAsync(void* to, size_t room, const void* from, size_t bytes, int kind, void* stream);
int aclrtMemsetAsync(void* pointer, size_t room, int32_t value, size_t bytes, void* stream);
int aclrtReserveMemAddress(void** pointer, size_t bytes, size_t alignment, void* expected, uint64_t flags);
int aclrtReleaseMemAddress(void* pointer);
int aclrtMallocPhysical(void** handle, size_t bytes, const void* properties, uint64_t flags);
int aclrtFreePhysical(void* handle);
int aclrtMapMem(void* pointer, size_t bytes, size_t offset, void* handle, uint64_t flags);
int aclrtUnmapMem(void* pointer);
int aclrtIpcMemGetExportKey(void* pointer, size_t bytes, char* key, size_t room, uint64_t flags);
int aclrtIpcMemImportByKey(void** pointer, const char* key, uint64_t flags);
int aclrtIpcMemClose(const char* key);
int aclrtLaunchHostFunc(void* stream, void (*function)(void*), void* data);
int aclmdlRICaptureBegin(void* stream, int mode);
int aclmdlRICaptureEnd(void* stream, void** model);
int aclmdlRIExecuteAsync(void* model, void* stream);
int aclmdlRIDestroy(void* model);
int aclmdlRICaptureTaskGrpBegin(void* stream);
int aclmdlRICaptureTaskGrpEnd(void* stream, void** group);
int aclmdlRICaptureTaskUpdateBegin(void* stream, void* group);
int aclmdlRICaptureTaskUpdateEnd(void* stream);
void* aclCreateTensorDesc(int dtype, int count, const int64_t* dims, int format);
void aclDestroyTensorDesc(const void* description);
void* aclCreateDataBuffer(void* data, size_t bytes);
int aclDestroyDataBuffer(const void* buffer);
void* aclopCreateAttr();
int aclopSetAttrString(void* attributes, const char* name, const char* value);
int aclopCompileAndExecute(const char* name, int inputs, const void* const* input_descriptions,
                           const void* const* input, int outputs, const void* const* output_descriptions,
                           void* const* output, const void* attributes, int engine, int compilation,
                           const char* kernels, void* stream);
int HcclGetRootInfo(void* info);
int HcclCommInitRootInfo(uint32_t size, const void* info, uint32_t rank, void** comm);
int HcclCommDestroy(void* comm);
int HcclAllReduce(void* from, void* to, uint64_t count, int dtype, int operation, void* comm, void* stream);
int HcclBroadcast(void* buffer, uint64_t count, int dtype, uint32_t root, void* comm, void* stream);
}

namespace {

constexpr int kThreads = 8, kInvalidParameter = 107000, kInvalidHandle = 107017;
constexpr int kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3;
constexpr size_t kCount = 256, kPart = 64;  // numbers of a buffer, and of one operation
constexpr size_t kBytes = kCount * sizeof(int64_t), kPartBytes = kPart * sizeof(int64_t);

void require(bool holds, const char* what) {
  if (holds) return;
  if (std::getenv("ISTHMUS_ASCEND_FAULT") != nullptr) std::_Exit(0);
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

// State that threads share; the handle may be destroyed at any time.
std::atomic<void*> shared_event{nullptr}, shared_stream{nullptr}, shared_model{nullptr},
    shared_group{nullptr};
void *captured_stream = nullptr, *attributes = nullptr;  // both live until the end
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
    create_event();
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
  // Every second thread's is one that processes can share.
  void create_event() { CHECK(aclrtCreateEventExWithFlag(&event_, index_ / 2 % 2 == 0 ? 0 : 0x40)); }
  size_t start() { return random_() % (kCount - kPart + 1); }

  void step() {
    switch (random_() % 19) {
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
      case 13:
        return capture_shared();
      case 14:
        return identity();
      case 15:
        return map();
      case 16:
        return share();
      default:
        return launch();
    }
  }

  // Later calls come after all so far, on the other stream.
  void switch_stream() {
    CHECK(aclrtRecordEvent(event_, stream()));
    current_ = 1 - current_;
    CHECK(aclrtStreamWaitEvent(stream(), event_));
  }

  void compare() { compare(numbers_); }

  void compare(const void* numbers) {
    CHECK(aclrtMemcpyAsync(pinned_, kBytes, numbers, kBytes, kDeviceToHost, stream()));
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

  // Uploads from pageable memory, which may be reused at once.
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

  // Whether this thread may begin or end the capture depends on the others.
  void capture_shared() {
    const auto require_or_refused = [](int status, const char* what) {
      require(status == 0 || status == kInvalidParameter, what);
    };
    void* model = nullptr;
    require_or_refused(aclmdlRICaptureBegin(captured_stream, 0), "aclmdlRICaptureBegin");
    CHECK(aclrtLaunchHostFunc(captured_stream, nothing, nullptr));
    const int status = aclmdlRICaptureEnd(captured_stream, &model);
    require_or_refused(status, "aclmdlRICaptureEnd");
    if (status != 0) return;
    for (int times = 0; times < 2; ++times) CHECK(aclmdlRIExecuteAsync(model, stream()));
    CHECK(aclmdlRIDestroy(model));
  }

  // A copy by the older interface, whose objects are destroyed before it runs.
  void identity() {
    constexpr int kInt64 = 9, kNd = 2;
    const Places places = draw_places();
    const int64_t count = kPart;
    CHECK(aclopSetAttrString(attributes, "name", index_ == 0 ? "a short value" : "another"));
    const void* const description = aclCreateTensorDesc(kInt64, 1, &count, kNd);
    const void* const from = aclCreateDataBuffer(numbers_ + places.from, kPartBytes);
    void* const to = aclCreateDataBuffer(numbers_ + places.at, kPartBytes);
    CHECK(aclopCompileAndExecute("Identity", 1, &description, &from, 1, &description, &to, attributes, 0, 0,
                                 nullptr, stream()));
    for (const void* buffer : {from, static_cast<const void*>(to)}) CHECK(aclDestroyDataBuffer(buffer));
    aclDestroyTensorDesc(description);
    std::memcpy(&model_[places.at], &model_[places.from], kPartBytes);
  }

  // The numbers in memory of an address range of its own.
  void map() {
    constexpr size_t kGranularity = 2 << 20;
    const struct {
      int handle_type, allocation_type, attribute;
      uint32_t location;
      int location_type;
      uint64_t reserved;
    } properties{0, 0, 0, static_cast<uint32_t>(device_), 1, 0};
    void *address = nullptr, *memory = nullptr;
    CHECK(aclrtReserveMemAddress(&address, kGranularity, 0, nullptr, 0));
    CHECK(aclrtMallocPhysical(&memory, kGranularity, &properties, 0));
    CHECK(aclrtMapMem(address, kGranularity, 0, memory, 0));
    CHECK(aclrtMemcpyAsync(address, kBytes, numbers_, kBytes, kDeviceToDevice, stream()));
    compare(address);
    CHECK(aclrtUnmapMem(address));
    CHECK(aclrtFreePhysical(memory));
    CHECK(aclrtReleaseMemAddress(address));
  }

  // The numbers where another process would import them.
  void share() {
    char key[64];
    void* imported = nullptr;
    CHECK(aclrtIpcMemGetExportKey(numbers_, kBytes, key, sizeof(key), 0));
    CHECK(aclrtIpcMemImportByKey(&imported, key, 0));
    compare(imported);
    CHECK(aclrtIpcMemClose(key));
  }

  void replace_event() {
    CHECK(aclrtDestroyEvent(event_));
    create_event();
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
    CHECK(aclrtCreateEventExWithFlag(&made, 0));
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
    // Not a second time: it may be another thread's by then.
    require(aclrtFree(static_cast<char*>(memory) + 1) != 0, "memory was freed by an address inside it");
    CHECK(aclrtFree(memory));
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
  uint64_t limit = 0;
  CHECK(aclrtSetOpExecuteTimeOutV2(1000, &limit));
  void* made = nullptr;
  CHECK(aclrtCreateEventExWithFlag(&made, 0));
  shared_event = made;
  CHECK(aclrtCreateStream(&captured_stream));
  attributes = aclopCreateAttr();
  CHECK(aclrtCreateStream(&made));
  shared_stream = made;
  const Captured captured = capture_group(made, [&] { CHECK(aclrtLaunchHostFunc(made, nothing, nullptr)); });
  shared_model = captured.model;
  shared_group = captured.group;
  for (auto& info : root_infos) CHECK(HcclGetRootInfo(info));
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back([=] { Worker(i, seed).run(rounds); });
  for (auto& thread : threads) thread.join();
  CHECK(aclmdlRIDestroy(shared_model));  // the model holds a stream
  return 0;
}
