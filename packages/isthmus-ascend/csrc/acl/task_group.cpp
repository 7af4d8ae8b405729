#include "task_group.h"

#include <map>
#include <utility>

#include "errors.h"

namespace isthmus::ascend {
namespace {

struct Updates {
  std::mutex mutex;
  std::map<int32_t, Update> by_stream;  // keyed by the stream's number
};

Updates& updates() {
  static Updates* const updates = new Updates;
  return *updates;
}

}  // namespace

void Replaceable::run() {
  std::shared_ptr<Work> work;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    work = work_;
  }
  work->run();
}

void Replaceable::replace(std::shared_ptr<Work> work) {
  const std::lock_guard<std::mutex> lock(mutex_);
  work_ = std::move(work);
}

std::shared_ptr<Work> TaskGroup::add(std::unique_ptr<Work> added) {
  return work.emplace_back(std::make_shared<Replaceable>(std::move(added)));
}

void begin_update(Stream& stream, std::shared_ptr<TaskGroup> group) {
  const std::lock_guard<std::mutex> lock(updates().mutex);
  if (!updates().by_stream.try_emplace(stream.id, Update{std::move(group), {}}).second)
    fail(kInvalidParameter,
         "stream %d updates a task group already; call aclmdlRICaptureTaskUpdateEnd() first", stream.id);
  stream.updates = true;
}

Update take_update(Stream& stream) {
  const std::lock_guard<std::mutex> lock(updates().mutex);
  const auto node = updates().by_stream.extract(stream.id);
  if (node.empty())
    fail(kInvalidParameter, "stream %d updates no task group; call aclmdlRICaptureTaskUpdateBegin() first",
         stream.id);
  stream.updates = false;
  return node.mapped();
}

bool keep_as_update(const Stream& stream, std::unique_ptr<Work>& work) {
  if (!stream.updates) return false;
  const std::lock_guard<std::mutex> lock(updates().mutex);
  const auto found = updates().by_stream.find(stream.id);
  if (found == updates().by_stream.end()) return false;
  found->second.work.push_back(std::move(work));
  return true;
}

}  // namespace isthmus::ascend
