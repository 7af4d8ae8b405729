// Task groups: operators of a model whose arguments can be updated after the capture.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "stream.h"
#include "work.h"

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

// Work that replaces that of a group.
struct Update {
  std::shared_ptr<TaskGroup> group;
  std::vector<std::shared_ptr<Work>> work;
};

// The stream updates the group until take_update(). Both throw Failure if the stream updates one already, or
// none.
void begin_update(Stream& stream, std::shared_ptr<TaskGroup> group);
Update take_update(Stream& stream);

// Whether the stream updates a task group, which then takes the work.
bool keep_as_update(const Stream& stream, std::unique_ptr<Work>& work);

}  // namespace isthmus::ascend
