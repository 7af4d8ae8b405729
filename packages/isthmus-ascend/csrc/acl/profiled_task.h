// A task of a stream that the profiler records, within a scope.
#pragma once

#include "enqueue.h"

namespace isthmus::ascend {

class ProfiledTask {
 public:
  ProfiledTask(void* stream, isthmus_ascend_task_kind kind, const char* name, const char* operands = "")
      : task_(isthmus_ascend_profiles() ? isthmus_ascend_begin_task(stream, kind, name, operands) : nullptr) {
  }
  ~ProfiledTask() {
    if (task_ != nullptr) isthmus_ascend_end_task(task_);
  }
  ProfiledTask(const ProfiledTask&) = delete;
  ProfiledTask& operator=(const ProfiledTask&) = delete;

 private:
  isthmus_ascend_task* const task_;
};

}  // namespace isthmus::ascend
