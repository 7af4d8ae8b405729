#include "dispatch/program.h"

#include <ATen/Parallel.h>

#include <memory>
#include <utility>

#include "core/host_work.h"
#include "core/profiler.h"
#include "core/stream.h"
#include "dispatch/captured.h"
#include "dispatch/statistics.h"

namespace isthmus {
namespace {

struct Launch {
  c10::Stream stream;
  Program program;
  std::string arguments;
  int threads;
};

void run(void* data) {
  const std::unique_ptr<Launch> launch(static_cast<Launch*>(data));
  run_at_work(launch->stream, [&] {
    // Each thread has its own number.
    if (at::get_num_threads() != launch->threads) at::set_num_threads(launch->threads);
    const char* failure = launch->program(launch->arguments.data());
    TORCH_CHECK(failure == nullptr, failure);
  });
}

void enqueue(const Launch& launch, c10::Stream stream) {
  auto enqueued = std::make_unique<Launch>(launch);
  enqueued->stream = stream;
  check(driver().stream_host_function(stream_handle(stream), &run, enqueued.get()), "launch a program");
  static_cast<void>(enqueued.release());
  mark_busy(stream);
}

class ProgramStep final : public Step {
 public:
  ProgramStep(std::string name, Launch launch) : name_(std::move(name)), launch_(std::move(launch)) {}

  void replay(c10::Stream stream) override { enqueue(launch_, stream); }
  const char* name() const noexcept override { return name_.c_str(); }
  bool in_thread() const noexcept override { return false; }

 private:
  const std::string name_;
  const Launch launch_;
};

}  // namespace

void launch_program(const std::string& name, c10::Stream stream, Program program, std::string arguments,
                    at::ArrayRef<at::Tensor> tensors) {
  TORCH_CHECK_NOT_IMPLEMENTED(ISTHMUS_HAS(driver(), stream_host_function), "driver ", driver().name,
                              " has no stream_host_function");
  Launch launch{stream, program, std::move(arguments), at::get_num_threads()};
  operator_calls(name, Route::kKernel).count();
  if (const auto capture = capture_of(stream)) {
    if (capture->by_driver()) capture->refuse(name + ", which runs on the host");
    for (const at::Tensor& tensor : tensors) save(*capture, tensor);
    capture->add(stream, std::make_unique<ProgramStep>(name, launch));
  }
  const profiler::Work work(profiler::Kind::kKernel, name.c_str(), stream, profiler::Work::By::kDriver);
  enqueue(launch, stream);
}

}  // namespace isthmus
