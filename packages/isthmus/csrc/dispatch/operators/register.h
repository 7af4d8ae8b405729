// Operators written by hand whose registration depends on the opened driver.
#pragma once

namespace isthmus {

// Calls the functions below; after set_preferences() and before register_routes().
void register_operators();

// Serves products, and what else computes a row by its place in the batch, in batch-invariant mode where the
// CPU's kernels serve (batch_invariant_products.cpp, batch_invariant_elementwise.cpp).
void register_batch_invariant_products();
void register_batch_invariant_elementwise();

// Sets the mode of the fused CPU kernels. Throws if they cannot run.
void set_batch_invariant_kernels(bool on);

// Notes the routes of the convolutions of out-of-tree backends (convolution.cpp).
void register_convolution();

// Looks for an attention kernel in the operator libraries (attention_fused.cpp).
void register_attention();

// Serves histc of integers by a decomposition (histogram.cpp).
void register_histogram();

// Serves nansum of complex tensors by a decomposition (nansum.cpp).
void register_nansum();

// Serves pow of a complex number and a float16 tensor by a decomposition (pow.cpp).
void register_pow();

// Registers the random operators by Philox if ISTHMUS_HOST_RNG selects it, and randperm of nothing
// (random.cpp).
void register_random();

// Whether scaled_dot_product_attention goes to isthmus::attention: by request, or because a library has it.
void set_fused_attention(bool requested) noexcept;
bool fused_attention() noexcept;

// Imports isthmus.ops, which defines isthmus::attention. Defined in bindings/dispatch.cpp, because this
// folder includes no Python.
void import_operators();

}  // namespace isthmus
