// Classification of addresses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "driver.h"

namespace isthmus::ascend {

// Kind and device of an address; any address is allowed.
isthmus_pointer_attributes attributes_of(const void* pointer);

// Whether the address is in host memory that the application registered.
bool is_registered(const void* pointer);

// Address at which the CPU reaches a value in device memory. Throws kInvalidParameter for other addresses.
uint64_t* value_at(void* pointer);

// Throws kInvalidParameter unless the first and the last byte of host memory are mapped: a size that is wrong
// by far is an error, not a crash.
void require_mapped(const void* pointer, size_t bytes, const char* argument);

enum class Access { kRead, kWrite };

// Throws kInvalidParameter unless every byte of host memory may be accessed, where no size of device memory
// limits them.
void require_accessible(const void* pointer, size_t bytes, const char* argument, Access access);

}  // namespace isthmus::ascend
