#include "task_group.h"

#include "model.h"

namespace isthmus::ascend {
namespace {

struct Update {
  std::shared_ptr<TaskGroup> group;
  std::vector<std::shared_ptr<Work>> work;
};

struct Updates {
  std::mutex mutex;
  std::map<int32_t, Update> by_stream;  // keyed by the stream's number
};

Updates& updates() {
  static Updates* const updates = new Updates;
  return *updates;
}

Handles<TaskGroup>& groups() {
  static Handles<TaskGroup>* const groups = new Handles<TaskGroup>{HandleKind::kTaskGroup};
  return *groups;
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

bool keep_as_update(const Stream& stream, std::unique_ptr<Work>& work) {
  if (!stream.updates) return false;
  const std::lock_guard<std::mutex> lock(updates().mutex);
  const auto found = updates().by_stream.find(stream.id);
  if (found == updates().by_stream.end()) return false;
  found->second.work.push_back(std::move(work));
  return true;
}

}  // namespace isthmus::ascend

using namespace isthmus::ascend;

// Operators that the captured stream enqueues from here on can be updated.
ISTHMUS_ASCEND_EXPORT int aclmdlRICaptureTaskGrpBegin(void* stream) {
  return call("aclmdlRICaptureTaskGrpBegin", [&] {
    const auto captured = stream_of(stream);
    const auto model = captured_model(*captured);
    const std::lock_guard<std::mutex> lock(model->mutex);
    if (!model->open_groups.try_emplace(captured->id, std::make_shared<TaskGroup>()).second)
      fail(kInvalidParameter, "stream %d has an open task group; call aclmdlRICaptureTaskGrpEnd() first",
           captured->id);
  });
}

// group: valid until the model is destroyed.
ISTHMUS_ASCEND_EXPORT int aclmdlRICaptureTaskGrpEnd(void* stream, void** group) {
  return call("aclmdlRICaptureTaskGrpEnd", [&] {
    require_not_null(group, "group");
    const auto captured = stream_of(stream);
    const auto model = captured_model(*captured);
    const std::lock_guard<std::mutex> lock(model->mutex);
    const auto node = model->open_groups.extract(captured->id);
    if (node.empty())
      fail(kInvalidParameter, "stream %d has no open task group; call aclmdlRICaptureTaskGrpBegin() first",
           captured->id);
    *group = model->own(groups(), node.mapped());
  });
}

// Operators that the stream enqueues from here on do not run: they replace those of the group.
ISTHMUS_ASCEND_EXPORT int aclmdlRICaptureTaskUpdateBegin(void* stream, void* group) {
  return call("aclmdlRICaptureTaskUpdateBegin", [&] {
    const auto updated = require_found("task group", group, groups().get(group));
    const auto used = stream_of(stream);
    if (is_captured(*used))
      fail(kInvalidParameter, "stream %d is captured; update on another stream", used->id);
    const std::lock_guard<std::mutex> lock(updates().mutex);
    if (!updates().by_stream.try_emplace(used->id, Update{updated, {}}).second)
      fail(kInvalidParameter,
           "stream %d updates a task group already; call aclmdlRICaptureTaskUpdateEnd() first", used->id);
    used->updates = true;
  });
}

// Replaces in the stream's order. Changes nothing if the number of operators differs from the group's.
ISTHMUS_ASCEND_EXPORT int aclmdlRICaptureTaskUpdateEnd(void* stream) {
  return call("aclmdlRICaptureTaskUpdateEnd", [&] {
    const auto used = stream_of(stream);
    const Update update = take_update(*used);
    if (update.work.size() != update.group->work.size())
      fail(kInvalidParameter, "%zu operators were enqueued to update a task group of %zu; enqueue the same",
           update.work.size(), update.group->work.size());
    enqueue(*used, [update] {
      for (size_t i = 0; i < update.work.size(); ++i) update.group->work[i]->replace(update.work[i]);
    });
  });
}
