#pragma once

#include <c10/core/StorageImpl.h>

namespace isthmus {

// Gives the chip's storage new bytes of the given size; the common part is kept.
void resize_storage(c10::StorageImpl& storage, size_t bytes);

}  // namespace isthmus
