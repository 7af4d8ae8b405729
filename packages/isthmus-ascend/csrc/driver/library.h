// A library of the vendor's toolkit.
#pragma once

#include <string>

#include "driver_failure.h"

namespace isthmus::npu {

class Library {
 public:
  // Fails with the status if the library cannot be opened.
  Library(const char* name, isthmus_status absent);

  // Null if the library has no such function.
  void* find(const char* function) const;
  // Fails with the status then.
  void* require(const char* function) const;

 private:
  const char* const name_;
  const isthmus_status absent_;
  void* handle_;  // stays open
};

}  // namespace isthmus::npu
