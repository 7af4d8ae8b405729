// Capture of streams into models (aclmdlRI).
#include "model.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "chip.h"
#include "errors.h"

namespace isthmus::ascend {
namespace {

enum CaptureStatus { kNone = 0, kActive = 1 };
// Capture modes; the host chip allows every call from other threads.
enum CaptureMode { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

std::atomic<uint32_t> last_id{0};
thread_local int mode_of_thread = kGlobal;

uint64_t capture_of(const Stream& stream) {
  uint64_t capture = 0;
  check(chip().graph_capturing(stream.queue, &capture));
  return capture;
}

// Ends the capture that began on the stream. A model whose work was not joined is destroyed.
isthmus_status end_capture(const Stream& stream, void* handle, Model& model) {
  isthmus_graph graph = nullptr;
  const isthmus_status status = chip().graph_end(stream.queue, &graph);
  model.graph = graph;
  if (status != ISTHMUS_OK && capture_of(stream) == 0) models().remove(handle);
  return status;
}

void run(void* work) { static_cast<Work*>(work)->run(); }

// Work of a model, whose failures are those of the stream that executes it.
class Captured final : public Work {
 public:
  Captured(Model& model, std::shared_ptr<Work> work) : model_(model), work_(std::move(work)) {}

  void run() override {
    WorkPlace execution;
    {
      const std::lock_guard<std::mutex> lock(model_.mutex);
      execution = model_.execution;
    }
    if (execution.status == nullptr) return work_->run();
    const WorkScope scope(execution);
    work_->run();
  }

 private:
  Model& model_;  // owns this
  const std::shared_ptr<Work> work_;
};

void require_mode(int mode) {
  if (mode < kGlobal || mode > kRelaxed) fail(kInvalidParameter, "capture mode %d; pass 0, 1 or 2", mode);
}

}  // namespace

Model::Model() : id(++last_id) {}

Model::~Model() {
  if (graph != nullptr) chip().graph_destroy(graph);
}

Handles<Model>& models() {
  static Handles<Model>* const models = new Handles<Model>{HandleKind::kModel};
  return *models;
}

std::shared_ptr<Model> model_at(const void* handle) {
  return require_found("model", handle, models().get(handle));
}

std::pair<void*, std::shared_ptr<Model>> model_of(const Stream& stream) {
  const uint64_t capture = capture_of(stream);
  if (capture != 0)
    for (auto& entry : models().all())
      if (entry.second->capture == capture) return entry;
  return {};
}

std::shared_ptr<Model> captured_model(const Stream& stream) {
  auto found = model_of(stream).second;
  if (found == nullptr)
    fail(kInvalidParameter, "stream %d is not captured; call aclmdlRICaptureBegin() first", stream.id);
  return found;
}

void abandon_capture(const Stream& stream) {
  const auto [handle, model] = model_of(stream);
  if (model != nullptr && end_capture(stream, handle, *model) == ISTHMUS_OK) models().remove(handle);
}

bool is_captured(const Stream& stream) { return capture_of(stream) != 0; }

std::shared_mutex& captures() {
  static std::shared_mutex* const captures = new std::shared_mutex;
  return *captures;
}

bool keep_in_model(const Stream& stream, std::unique_ptr<Work>& work) {
  if (!is_captured(stream)) return false;
  const auto model = model_of(stream).second;
  if (model == nullptr)
    fail(kInvalidParameter, "stream %d is captured into a model that is destroyed", stream.id);
  const std::lock_guard<std::mutex> lock(model->mutex);
  const auto group = model->open_groups.find(stream.id);
  std::shared_ptr<Work> kept =
      group == model->open_groups.end() ? std::move(work) : group->second->add(std::move(work));
  kept = std::make_shared<Captured>(*model, std::move(kept));
  check(chip().stream_host_function(stream.queue, run, kept.get()));
  model->work.push_back(std::move(kept));
  return true;
}

}  // namespace isthmus::ascend

using namespace isthmus::ascend;

ISTHMUS_ASCEND_EXPORT int aclmdlRICaptureBegin(void* stream, int mode) {
  return call("aclmdlRICaptureBegin", [&] {
    const auto captured = stream_of(stream);
    const auto model = std::make_shared<Model>();
    const std::lock_guard lock(captures());
    require_mode(mode);
    check(chip().graph_begin(captured->queue));
    model->capture = capture_of(*captured);
    models().add(model);
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
    const std::lock_guard lock(captures());
    const auto [handle, found] = model_of(*captured);
    if (found == nullptr)
      fail(kInvalidParameter, "stream %d is not captured; call aclmdlRICaptureBegin() first", captured->id);
    check(end_capture(*captured, handle, *found));
    *model = handle;
  });
}

ISTHMUS_ASCEND_EXPORT int aclmdlRIGetId(void* model, uint32_t* id) {
  return call("aclmdlRIGetId", [&] {
    require_not_null(id, "id");
    *id = model_at(model)->id;
  });
}

ISTHMUS_ASCEND_EXPORT int aclmdlRIDestroy(void* model) {
  return call("aclmdlRIDestroy", [&] {
    const auto found = model_at(model);
    if (found->capture != 0 && found->graph == nullptr)
      fail(kInvalidParameter, "model %u is being captured; call aclmdlRICaptureEnd() first", found->id);
    models().remove(model);
  });
}

// mode: replaced by the thread's mode before.
ISTHMUS_ASCEND_EXPORT int aclmdlRICaptureThreadExchangeMode(int* mode) {
  return call("aclmdlRICaptureThreadExchangeMode", [&] {
    require_not_null(mode, "mode");
    require_mode(*mode);
    std::swap(*mode, mode_of_thread);
  });
}

// Prints the number of operators to the standard output.
ISTHMUS_ASCEND_EXPORT int aclmdlRIDebugPrint(void* model) {
  return call("aclmdlRIDebugPrint", [&] {
    const auto found = model_at(model);
    const std::lock_guard<std::mutex> lock(found->mutex);
    std::printf("model %u: %zu operators\n", found->id, found->work.size());
  });
}

// Writes the operators in their order, to a file of the format of Chrome's traces. flags: how much the
// vendor's runtime writes.
ISTHMUS_ASCEND_EXPORT int aclmdlRIDebugJsonPrint(void* model, const char* path, uint32_t) {
  return call("aclmdlRIDebugJsonPrint", [&] {
    require_not_null(path, "path");
    const auto found = model_at(model);
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "w"), std::fclose);
    if (file == nullptr) fail(kInvalidParameter, "cannot write %s: %s", path, std::strerror(errno));
    const std::lock_guard<std::mutex> lock(found->mutex);
    std::fprintf(file.get(), "[");
    for (size_t i = 0; i < found->work.size(); ++i)
      std::fprintf(file.get(),
                   R"(%s{"name": "operator %zu", "pid": "model %u", "tid": "stream0", "ph": "X", )"
                   R"("ts": %zu, "dur": 1, "args": {}})",
                   i == 0 ? "" : ",\n", i, found->id, i);
    std::fprintf(file.get(), "]\n");
  });
}
