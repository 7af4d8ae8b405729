// Execution of models, and updates of their task groups (aclmdlRI).
#include "chip.h"
#include "errors.h"
#include "model.h"
#include "stream_work.h"
#include "task_group.h"

namespace isthmus::ascend {
namespace {

Handles<TaskGroup>& groups() {
  static Handles<TaskGroup>* const groups = new Handles<TaskGroup>{HandleKind::kTaskGroup};
  return *groups;
}

}  // namespace
}  // namespace isthmus::ascend

using namespace isthmus::ascend;

ISTHMUS_ASCEND_EXPORT int aclmdlRIExecuteAsync(void* model, void* stream) {
  return call("aclmdlRIExecuteAsync", [&] {
    const auto found = model_at(model);
    if (found->graph == nullptr)
      fail(kInvalidParameter, "the model is being captured; call aclmdlRICaptureEnd() first");
    const auto used = stream_of(stream);
    const std::shared_lock lock(captures());
    enqueue_held(*used, work_of([found, execution = WorkPlace{used->status, used->status->next()}] {
      const std::lock_guard<std::mutex> lock_model(found->mutex);
      found->execution = execution;
    }));
    check(chip().graph_launch(found->graph, used->queue));
    enqueue_held(*used, work_of([found] {}));  // its work lives until it has run
  });
}

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
    begin_update(*used, updated);
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
