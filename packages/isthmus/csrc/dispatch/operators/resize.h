#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/core/Stream.h>

namespace isthmus {

// Gives the chip's storage new bytes of the given size; the common part is kept.
void resize_storage(c10::StorageImpl& storage, size_t bytes);

// Memory of the given size with a copy of the first `kept` bytes, enqueued on the stream.
c10::DataPtr copy_to_new_memory(const void* from, size_t kept, size_t bytes, c10::Stream stream);

}  // namespace isthmus
