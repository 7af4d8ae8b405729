// Models: captured work of streams.
#pragma once

#include <memory>

#include "stream.h"

namespace isthmus::ascend {

bool is_captured(const Stream& stream);

// Whether the stream is captured; its model then owns the work, and runs it at each execution. Throws
// Failure.
bool keep_in_model(const Stream& stream, std::unique_ptr<Work>& work);

}  // namespace isthmus::ascend
