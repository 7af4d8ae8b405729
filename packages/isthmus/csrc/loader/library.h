// Common parts of opening a driver and opening an operator library.
#pragma once

#include <stddef.h>

#include <stdexcept>
#include <string>

namespace isthmus::loader {

// One line for the user.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Address of the symbol in the library at path, which stays open. what: "driver" or "operator library".
// Throws Refused.
void* find_symbol(const std::string& what, const std::string& path, const char* symbol);

// A shared library that was cut short kills the process which opens it (SIGBUS): Refused before that.
void check_complete(const std::string& what, const std::string& path);

// "1.2"
std::string version_text(unsigned version);

void write_error(const char* message, char* error, size_t error_bytes) noexcept;

// Runs body; 0, or -1 with the message of what it throws in error.
template <typename Body>
int call_guarded(char* error, size_t error_bytes, Body body) noexcept {
  try {
    body();
    return 0;
  } catch (const std::exception& exception) {
    write_error(exception.what(), error, error_bytes);
    return -1;
  }
}

}  // namespace isthmus::loader
