// Programs: kernels that were compiled for the host outside of the operator libraries, as Triton's are.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <string>

namespace isthmus {

// A C function of the bytes of its arguments. It returns null, or what failed: the thread's, until its next
// call.
using Program = const char* (*)(const void* arguments);

// Enqueues a program on a stream. It is counted as a kernel by its name, and a captured stream keeps it.
// Its failure is that of the stream: the next wait for the stream or its device throws it.
// tensors: on the stream's device, which it may read and write.
void launch_program(const std::string& name, c10::Stream stream, Program program, std::string arguments,
                    at::ArrayRef<at::Tensor> tensors);

}  // namespace isthmus
