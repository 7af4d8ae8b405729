// Drops references on threads that may outlive the interpreter.
//
// The last reference to a tensor may also be the last one to a Python object, of the tensor or of its
// storage, and dropping that takes the interpreter. Once it has begun to exit, it ends a thread that asks for
// it; in the middle of a destructor, that terminates the process. From then on, such references are leaked.
#pragma once

#include <type_traits>
#include <utility>

namespace isthmus {
namespace detail {

// While one with `allowed` exists, end_drops() does not return.
struct Drop {
  Drop() noexcept;
  ~Drop();
  Drop(const Drop&) = delete;
  Drop& operator=(const Drop&) = delete;

  const bool allowed;
};

}  // namespace detail

// Destroys the value, or leaks it after end_drops(). The caller must not hold a lock that a thread with the
// interpreter waits for.
template <typename T>
void drop(T&& value) {
  static_assert(!std::is_lvalue_reference_v<T>, "move it");
  const detail::Drop scope;
  if (scope.allowed)
    const T dropped = std::move(value);
  else
    static_cast<void>(new T(std::move(value)));
}

// Called without the interpreter's lock, before it exits: waits for the drops in progress, and leaks later
// ones.
void end_drops() noexcept;

}  // namespace isthmus
