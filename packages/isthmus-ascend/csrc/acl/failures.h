// Failures of a device's work, which the next call that waits for the device returns.
#pragma once

#include "errors.h"

namespace isthmus::ascend {

// Keeps the failure unless the device has one already.
void keep_failure(int32_t device, Failure failure);

// Throws the device's failure, once; or, each time, the error at which torch_npu's task queue ended.
void throw_failure(int32_t device);

// Records a failed call: if it ends torch_npu's task queue, each later wait for the device fails.
void note_end_of_task_queue(int code, const char* function, const char* message) noexcept;

// Says that this thread runs work of the device.
void set_device_of_work(int32_t device) noexcept;

}  // namespace isthmus::ascend
