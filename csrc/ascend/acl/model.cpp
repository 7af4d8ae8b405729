// Capture of streams into models, and their execution (aclmdlRI).
#include "model.h"

#include <cstdio>

#include "context.h"

namespace isthmus::ascend {
namespace {

enum CaptureStatus { kNone = 0, kActive = 1 };
// Which calls of other threads a capture forbids; the host chip forbids none.
enum CaptureMode { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

struct Model {
  const uint64_t capture;  // the driver's number
  std::mutex mutex;        // guards what follows
  std::vector<std::unique_ptr<Work>> work;
  isthmus_graph graph = nullptr;  // null while it is captured

  explicit Model(uint64_t capture) : capture(capture) {}
  ~Model() {
    if (graph != nullptr) chip().graph_destroy(graph);
  }
};

Handles<Model>& models() {
  static Handles<Model>* const models = new Handles<Model>{5};
  return *models;
}

thread_local int mode_of_thread = kGlobal;

uint64_t capture_of(const Stream& stream) {
  uint64_t capture = 0;
  check(chip().graph_capturing(stream.queue, &capture));
  return capture;
}

// The model that the stream is captured into, with its handle; null if none.
std::pair<void*, std::shared_ptr<Model>> model_of(const Stream& stream) {
  const uint64_t capture = capture_of(stream);
  if (capture != 0)
    for (auto& entry : models().all())
      if (entry.second->capture == capture) return entry;
  return {};
}

std::shared_ptr<Model> model_at(const void* handle) {
  return require_found("model", handle, models().get(handle));
}

void run(void* work) { static_cast<Work*>(work)->run(); }

}  // namespace

bool is_captured(const Stream& stream) { return capture_of(stream) != 0; }

bool keep_in_model(const Stream& stream, std::unique_ptr<Work>& work) {
  const auto model = model_of(stream).second;
  if (model == nullptr) return false;
  const std::lock_guard<std::mutex> lock(model->mutex);
  check(chip().stream_host_function(stream.queue, run, work.get()));
  model->work.push_back(std::move(work));
  return true;
}

}  // namespace isthmus::ascend

using namespace isthmus::ascend;

ISTHMUS_ASCEND_EXPORT int aclmdlRICaptureBegin(void* stream, int mode) {
  return call("aclmdlRICaptureBegin", [&] {
    if (mode < kGlobal || mode > kRelaxed) fail(kInvalidParameter, "capture mode %d; pass 0, 1 or 2", mode);
    const auto captured = stream_of(stream);
    check(chip().graph_begin(captured->queue));
    models().add(std::make_shared<Model>(capture_of(*captured)));
  });
}

// status: 0 none, 1 active.
ISTHMUS_ASCEND_EXPORT int aclmdlRICaptureGetInfo(void* stream, int* status, void** model) {
  return call("aclmdlRICaptureGetInfo", [&] {
    require_not_null(status, "status");
    require_not_null(model, "model");
    const auto [handle, found] = model_of(*stream_of(stream));
    *status = found == nullptr ? kNone : kActive;
    *model = handle;
  });
}

ISTHMUS_ASCEND_EXPORT int aclmdlRICaptureEnd(void* stream, void** model) {
  return call("aclmdlRICaptureEnd", [&] {
    require_not_null(model, "model");
    const auto captured = stream_of(stream);
    const auto [handle, found] = model_of(*captured);
    if (found == nullptr)
      fail(kInvalidParameter, "stream %d is not captured; call aclmdlRICaptureBegin() first", captured->id);
    const isthmus_status status = chip().graph_end(captured->queue, &found->graph);
    if (status != ISTHMUS_OK && capture_of(*captured) == 0) models().remove(handle);
    check(status);
    *model = handle;
  });
}

ISTHMUS_ASCEND_EXPORT int aclmdlRIGetId(void* model, uint32_t* id) {
  return call("aclmdlRIGetId", [&] {
    require_not_null(id, "id");
    *id = static_cast<uint32_t>(model_at(model)->capture);
  });
}

ISTHMUS_ASCEND_EXPORT int aclmdlRIExecuteAsync(void* model, void* stream) {
  return call("aclmdlRIExecuteAsync", [&] {
    const auto found = model_at(model);
    if (found->graph == nullptr)
      fail(kInvalidParameter, "the model is being captured; call aclmdlRICaptureEnd() first");
    const auto used = stream_of(stream);
    check(chip().graph_launch(found->graph, used->queue));
    enqueue(*used, [found] {});  // its work lives until it has run
  });
}

ISTHMUS_ASCEND_EXPORT int aclmdlRIDestroy(void* model) {
  return call("aclmdlRIDestroy", [&] {
    model_at(model);
    models().remove(model);
  });
}

// mode: replaced by the thread's mode before.
ISTHMUS_ASCEND_EXPORT int aclmdlRICaptureThreadExchangeMode(int* mode) {
  return call("aclmdlRICaptureThreadExchangeMode", [&] {
    require_not_null(mode, "mode");
    if (*mode < kGlobal || *mode > kRelaxed)
      fail(kInvalidParameter, "capture mode %d; pass 0, 1 or 2", *mode);
    std::swap(*mode, mode_of_thread);
  });
}

// Prints the number of tasks to the standard output.
ISTHMUS_ASCEND_EXPORT int aclmdlRIDebugPrint(void* model) {
  return call("aclmdlRIDebugPrint", [&] {
    const auto found = model_at(model);
    const std::lock_guard<std::mutex> lock(found->mutex);
    std::printf("model %llu: %zu operators\n", static_cast<unsigned long long>(found->capture),
                found->work.size());
  });
}
