// Task groups: operators of a model whose arguments can be updated after the capture.
#pragma once

#include <mutex>

#include "stream.h"

namespace isthmus::ascend {

// Work of a model that can be replaced between its executions.
class Replaceable final : public Work {
 public:
  explicit Replaceable(std::shared_ptr<Work> work) : work_(std::move(work)) {}
  void run() override;
  void replace(std::shared_ptr<Work> work);

 private:
  std::mutex mutex_;  // guards what follows
  std::shared_ptr<Work> work_;
};

// The work that a stream enqueued between the two calls that delimit the group.
struct TaskGroup {
  std::vector<std::shared_ptr<Replaceable>> work;

  // Adds to the group; returns what the model runs.
  std::shared_ptr<Work> add(std::unique_ptr<Work> added);
};

// Whether the stream updates a task group, which then takes the work.
bool keep_as_update(const Stream& stream, std::unique_ptr<Work>& work);

}  // namespace isthmus::ascend
