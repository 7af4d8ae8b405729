// Models: captured work of streams.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "handles.h"
#include "stream.h"
#include "task_group.h"
#include "work.h"

namespace isthmus::ascend {

struct Model {
  const uint32_t id;
  std::atomic<uint64_t> capture{0};           // the driver's number; 0 before it begins
  std::atomic<isthmus_graph> graph{nullptr};  // null until the capture ends
  std::mutex mutex;                           // guards what follows
  WorkPlace execution;                        // the last one
  std::vector<std::shared_ptr<Work>> work;
  std::map<int32_t, std::shared_ptr<TaskGroup>> open_groups;  // keyed by stream
  std::vector<std::shared_ptr<void>> owned;                   // handles that end with the model

  Model();
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Adds an object that lives as long as the model, and returns its handle.
  template <typename Object>
  void* own(Handles<Object>& handles, std::shared_ptr<Object> object) {
    void* const handle = handles.add(std::move(object));
    owned.emplace_back(handle, [&handles](void* ended) { handles.remove(ended); });
    return handle;
  }
};

Handles<Model>& models();

// Throws Failure if it does not exist.
std::shared_ptr<Model> model_at(const void* handle);

// The model that the stream is captured into, with its handle; null if none.
std::pair<void*, std::shared_ptr<Model>> model_of(const Stream& stream);

// The model that a stream is captured into. Throws Failure if the stream is not captured.
std::shared_ptr<Model> captured_model(const Stream& stream);

// Ends the capture that began on the stream, if any, and destroys its model. The caller holds captures()
// alone.
void abandon_capture(const Stream& stream);

bool is_captured(const Stream& stream);

// Shared while work is enqueued, exclusive while streams enter or leave a capture: work that runs once is not
// captured, and that of a model does not run outside of it.
std::shared_mutex& captures();

// Whether the stream is captured; its model then owns the work, and runs it at each execution. The caller
// holds captures(). Throws Failure.
bool keep_in_model(const Stream& stream, std::unique_ptr<Work>& work);

}  // namespace isthmus::ascend
