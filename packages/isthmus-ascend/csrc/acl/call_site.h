// The line of a Python program that the calling thread executes.
#pragma once

#include <string>

namespace isthmus::ascend {

// "file:line" of the innermost frame that is not PyTorch's; empty if the thread runs no Python.
std::string call_site();

}  // namespace isthmus::ascend
