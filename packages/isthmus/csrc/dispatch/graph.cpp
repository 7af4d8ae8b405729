#include "dispatch/graph.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "core/generator.h"
#include "core/host_work.h"
#include "core/profiler.h"
#include "core/stream.h"
#include "dispatch/operator_library.h"
#include "memory/device_memory.h"
#include "memory/memory.h"

namespace isthmus {
namespace {

// Whether the driver captures all that a stream does: some of a chip's work is done by the calling thread if
// the CPU's kernels serve it, or those of a library that are no work of a stream.
bool driver_captures() {
  return ISTHMUS_HAS(driver(), graph_begin) && !delegates_to_cpu() && !libraries_run_in_thread();
}

bool began_here(const Capture& capture) { return detail::capture_of_thread == &capture; }

}  // namespace

void StreamOrdered::synchronize() noexcept {
  try {
    if (stream_ && !in_bad_fork()) synchronize_event(last_);
  } catch (const std::exception&) {
  }
  clear();
}

Graph::~Graph() {
  try {
    without_gil([this] { reset(); });
  } catch (const std::exception& error) {
    TORCH_WARN("a graph could not be released: ", error.what());
  }
}

void Graph::capture_begin(c10::MempoolId_t pool, at::GraphCaptureMode mode) {
  TORCH_CHECK(!captured_ && !capture_,
              "this graph has captured already; call reset() first, or use another one.");
  driver();
  device_ = current_device();
  const c10::Stream stream = current_stream(device_);
  default_generator(device_);  // is seeded when it is made, which a capture refuses
  memory::install_router();
  capture_ = Capture::begin(stream, driver_captures(), mode <= at::GraphCaptureMode::Global);
  pool_number_ = pool.second != 0 ? static_cast<int64_t>(pool.second) : memory::new_pool_number();
  pool_ = memory::device_memory(device_).open_pool(pool_number_, /*is_last_resort=*/false, /*of_graph=*/true);
  outer_pool_ = std::exchange(memory::detail::pool_of_thread, pool_);
}

void Graph::capture_end() {
  TORCH_CHECK(capture_ != nullptr, "this graph is not capturing; call capture_begin() first.");
  TORCH_CHECK(began_here(*capture_),
              "capture_end() in another thread than capture_begin(); call it in the thread that began.");
  memory::detail::pool_of_thread = outer_pool_;
  const std::shared_ptr<Capture> capture = std::exchange(capture_, nullptr);
  try {
    steps_ = capture->end();
  } catch (...) {
    leave_pool();
    throw;
  }
  allocations_ = capture->allocations();
  kept_ = capture->kept_objects();
  before_replays_ = capture->replay_functions();
  captured_ = true;
  const auto enqueued = [](const auto& step) { return !step->in_thread(); };
  if (!capture->by_driver() && std::any_of(steps_.begin(), steps_.end(), enqueued))
    work_.record(capture->stream());
}

void Graph::instantiate() {
  TORCH_CHECK(captured_, "this graph has captured nothing; call capture_begin() and capture_end() first.");
  TORCH_CHECK(keeps_graph_, "instantiate() is intended to be called by the user only when keep_graph=true");
}

void Graph::replay() {
  TORCH_CHECK(captured_, "Called replay() on a graph that has captured nothing; capture it first.");
  driver();  // refuses a forked process
  const c10::Stream stream = current_stream(device_);
  require_not_captured(stream, "replay() of another graph");
  const std::lock_guard<std::mutex> lock(replaying_);
  work_.wait(stream);
  // Modes and transforms of the caller are no matter of the kernels.
  const c10::impl::ForceDispatchKeyGuard keys(
      c10::default_included_set,
      c10::default_excluded_set | c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  bool grad_mode = c10::GradMode::is_enabled();
  const c10::AutoGradMode outer_mode(grad_mode);
  const memory::PoolScope pool(stream);
  const bool profiled = profiler::recording(), asynchronous = is_asynchronous();
  bool in_thread = false;  // the last step
  if (C10_UNLIKELY(asynchronous))
    for (const auto& function : before_replays_) function(stream);
  for (const auto& step : steps_) {
    const bool later = asynchronous && step->in_thread() && step->may_run_later();
    const bool drained = std::exchange(in_thread, step->in_thread() && !later);
    if (in_thread && !drained) drain(stream);
    if (step->grad_mode() != grad_mode) c10::GradMode::set_enabled(grad_mode = !grad_mode);
    if (C10_LIKELY(!profiled)) {
      run(*step, stream, later);
      continue;
    }
    using profiler::Work;
    const Work work(profiler::Kind::kKernel, step->name(), stream,
                    in_thread ? Work::By::kThread : Work::By::kDriver);
    run(*step, stream, later);
  }
  if (steps_.empty()) return;
  // The thread's own work comes after that of its stream.
  in_thread ? work_.clear() : work_.record(stream);
}

void Graph::run(Step& step, c10::Stream stream, bool later) {
  if (C10_LIKELY(!later)) return step.replay(stream);
  enqueue_host_work(stream, [&step, stream] {
    const memory::PoolScope pool(stream);
    step.replay(stream);
  });
}

void Graph::reset() {
  if (const std::shared_ptr<Capture> capture = std::exchange(capture_, nullptr)) {
    if (began_here(*capture)) {
      memory::detail::pool_of_thread = outer_pool_;
    } else {
      new std::shared_ptr<Capture>(capture);  // leaked: the thread that began has its address
    }
    try {
      capture->end();
    } catch (const c10::Error&) {
      // Its capture is given up.
    }
  }
  work_.synchronize();
  captured_ = false;
  steps_.clear();
  before_replays_.clear();
  kept_.clear();
  allocations_.clear();
  leave_pool();
}

std::optional<size_t> Graph::allocated_after(const void* address) const {
  const auto found = allocations_.find(reinterpret_cast<uintptr_t>(address));
  return found == allocations_.end() ? std::nullopt : std::make_optional(found->second.position);
}

bool Graph::has_allocated(const at::Tensor& tensor) const {
  if (!tensor.has_storage()) return false;
  const void* const begin = tensor.storage().data();
  return capture_ ? capture_->has_allocated(begin) : allocated_after(begin).has_value();
}

std::vector<at::Tensor> Graph::memory() const {
  const c10::Device device(kChip, device_);
  const auto options = at::TensorOptions().dtype(at::kByte).device(device);
  std::vector<at::Tensor> blocks;
  for (const auto& [begin, block] : allocations_)
    blocks.push_back(at::for_blob(reinterpret_cast<void*>(begin), {static_cast<int64_t>(block.bytes)})
                         .options(options)
                         .target_device(device)
                         .make_tensor());
  return blocks;
}

void Graph::leave_pool() noexcept {
  const int64_t pool = std::exchange(pool_, 0);
  if (pool == 0 || in_bad_fork()) return;
  try {
    memory::device_memory(device_).close_pool(pool, /*of_graph=*/true);
  } catch (const std::exception& error) {
    TORCH_WARN("the memory of a graph could not be released: ", error.what());
  }
}

c10::MempoolId_t Graph::pool() const {
  TORCH_CHECK(captured_, "Called pool() on a graph that has captured nothing; capture it first.");
  return {0, static_cast<c10::CaptureId_t>(pool_number_)};
}

void Graph::debug_dump(const std::string& path) {
  TORCH_CHECK(debugs_ || keeps_graph_, "call enable_debug_mode() before the capture, then debug_dump().");
  TORCH_CHECK(captured_, "this graph has captured nothing; capture it first.");
  std::ofstream file(path);
  file << "digraph isthmus {\n";
  for (size_t i = 0; i < steps_.size(); ++i) {
    file << "  n" << i << " [label=\"" << i << ": " << steps_[i]->name() << "\"];\n";
    if (i > 0) file << "  n" << i - 1 << " -> n" << i << ";\n";
  }
  file << "}\n";
  TORCH_CHECK(file.good(), "cannot write ", path, ".");
}

void Graph::register_generator(const at::Generator& generator) {
  static_cast<void>(chip_generator(generator));  // a capture notes the generators that it meets
}

c10::MempoolId_t graph_pool() { return {0, static_cast<c10::CaptureId_t>(memory::new_pool_number())}; }

void register_graphs() {
  const std::string key = c10::DeviceTypeName(kChip, /*lower_case=*/false);
  if (!at::GraphImplRegistry()->Has(key))
    at::GraphImplRegistry()->Register(key,
                                      [](at::GraphImplArgs args) -> std::unique_ptr<at::GraphImplInterface> {
                                        return std::make_unique<Graph>(args);
                                      });
}

}  // namespace isthmus
