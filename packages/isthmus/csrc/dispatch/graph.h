// A graph: the work of captured streams, replayed without Python and without the dispatcher.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/GraphImplInterface.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/capture.h"
#include "core/event.h"

namespace isthmus {

// Work that uses the same memory on one stream after another.
class StreamOrdered {
 public:
  StreamOrdered() = default;
  ~StreamOrdered() { destroy_event(last_); }
  StreamOrdered(const StreamOrdered&) = delete;
  StreamOrdered& operator=(const StreamOrdered&) = delete;

  // The stream waits for the recorded work.
  void wait(c10::Stream stream) {
    if (stream_ && *stream_ != stream) wait_event(last_, stream);
  }
  // The stream's work so far is the last.
  void record(c10::Stream stream) {
    record_event(&last_, stream, /*timing=*/false);
    stream_ = stream;
  }
  // All recorded work is known to be done.
  void clear() noexcept { stream_.reset(); }
  // The host waits for it. The failure of a stream is left to its next user.
  void synchronize() noexcept;

 private:
  void* last_ = nullptr;  // event of core/event.h
  std::optional<c10::Stream> stream_;
};

// Implements torch.accelerator.Graph and torch.chip.Graph. Its memory is a part of a MemPool, whose blocks
// stay reserved until reset() or the graph's destruction, which wait for replays. Used by one thread at a
// time, except that replays of several threads run one after the other. Replays on several streams are
// ordered after each other and after the work of the capture.
class Graph final : public at::GraphImplInterface {
 public:
  explicit Graph(const at::GraphImplArgs& args) : keeps_graph_(args.keep_graph) {}
  ~Graph() override;

  // Captures the current stream. pool: of another graph or of graph_pool(); {0, 0} is a new one.
  void capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode mode) override;
  void capture_end() override;
  void instantiate() override;
  // Replays on the current stream of the device.
  void replay() override;
  // Waits for enqueued replays.
  void finish() noexcept { work_.synchronize(); }
  void reset() override;
  c10::MempoolId_t pool() const override;
  void enable_debug_mode() override { debugs_ = true; }
  // Writes the steps in the order of replay as a graph in the DOT language.
  void debug_dump(const std::string& path) override;
  // The generator draws for the graph. Those of any device may, registered or not.
  void register_generator(const at::Generator& generator);

  size_t size() const noexcept { return steps_.size(); }
  const Steps& steps() const noexcept { return steps_; }
  // Number of steps before the block at the address was allocated in the capture; none if it was not.
  std::optional<size_t> allocated_after(const void* address) const;
  // Whether the tensor's memory was allocated in the capture, which may be under way.
  bool has_allocated(const at::Tensor& tensor) const;
  // The bytes that were allocated in the capture, freed ones included, as tensors that own nothing: valid
  // until reset().
  std::vector<at::Tensor> memory() const;

 private:
  void run(Step& step, c10::Stream stream, bool later);
  void leave_pool() noexcept;

  const bool keeps_graph_;
  bool debugs_ = false;
  bool captured_ = false;  // capture_end() has succeeded
  std::shared_ptr<Capture> capture_;
  Steps steps_;
  std::vector<std::function<void(c10::Stream)>> before_replays_;
  std::vector<std::shared_ptr<void>> kept_;               // storages of the capture
  std::map<uintptr_t, Capture::Allocation> allocations_;  // allocations of the capture
  c10::DeviceIndex device_ = -1;
  int64_t pool_number_ = 0;
  int64_t pool_ = 0;  // this device's part of it; 0: none
  int64_t outer_pool_ = 0;
  StreamOrdered work_;  // order of the capture, then of replays
  std::mutex replaying_;
};

// A new pool that graphs can share.
c10::MempoolId_t graph_pool();

// Registers Graph as the implementation of torch.accelerator.Graph; once, under the device's name.
void register_graphs();

}  // namespace isthmus
