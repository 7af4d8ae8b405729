// Work that streams run in order.
#pragma once

#include <memory>
#include <utility>

namespace isthmus::ascend {

// Runs once, or at each execution of a model.
struct Work {
  virtual ~Work() = default;
  virtual void run() = 0;
};

// Work that calls a function without arguments.
template <typename Task>
std::unique_ptr<Work> work_of(Task task) {
  struct Call final : Work {
    explicit Call(Task task) : task(std::move(task)) {}
    void run() override { task(); }
    Task task;
  };
  return std::make_unique<Call>(std::move(task));
}

}  // namespace isthmus::ascend
