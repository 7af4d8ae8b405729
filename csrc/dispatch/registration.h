// Registers with PyTorch's dispatcher what serves each overload on the opened driver.
#pragma once

#include <string>

#include "dispatch/decomposition.h"

namespace isthmus {

// Of the driver's description.
struct Preferences {
  bool prefer_delegate = false;  // where an overload has a kernel and a delegate
  bool fallback = true;          // whether copies to CPU are allowed
};

// What register_routes() was given; a driver that says nothing before.
const Preferences& preferences() noexcept;

// On every overload that has a kernel, a CPU kernel or a decomposition and no kernel of ours; once, when the
// driver is opened and its operator libraries are added.
void register_routes(const Preferences& preferences, PythonDecompositions decompositions);

// Registers the libraries' kernels of an operator that was defined after register_routes() and has a
// composite, which would otherwise be taken. False if there are none.
bool serve_extension(const std::string& name);

// Names the routes of those that have a kernel of their own (overrideable.cpp); part of register_routes().
void register_overrideable();

// Sees whether the libraries have an attention kernel (attention_fused.cpp); part of register_routes().
void register_attention();

// Whether scaled_dot_product_attention goes to isthmus::attention: by request, or because a library has it.
void set_fused_attention(bool requested) noexcept;
bool fused_attention() noexcept;

// Operators of random numbers by Philox, where ISTHMUS_HOST_RNG asks for it (random.cpp); part of
// register_routes().
void register_philox();

}  // namespace isthmus
