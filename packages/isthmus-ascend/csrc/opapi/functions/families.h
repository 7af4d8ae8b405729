// The functions and families that rows may call beside ATen's operators, one file per subject.
#pragma once

#include <ATen/core/Tensor.h>

#include "opapi/program.h"

namespace isthmus::ascend {

const std::vector<NamedFunction>& value_functions();
const std::vector<NamedFunction>& indexing_functions();
const std::vector<NamedFunction>& activation_functions();
const std::vector<NamedFunction>& training_functions();
const std::vector<NamedFunction>& rotary_functions();

const std::vector<NamedFamily>& norm_families();
const std::vector<NamedFamily>& quant_families();
const std::vector<NamedFamily>& flash_attention_families();
const std::vector<NamedFamily>& infer_attention_families();
const std::vector<NamedFamily>& moe_families();
const std::vector<NamedFamily>& sequence_families();
const std::vector<NamedFamily>& loss_families();
const std::vector<NamedFamily>& assorted_families();
const std::vector<NamedFamily>& matmul_families();
const std::vector<NamedFamily>& grouped_matmul_families();
const std::vector<NamedFamily>& cache_families();
const std::vector<NamedFamily>& rotary_families();
const std::vector<NamedFamily>& moe_token_families();
const std::vector<NamedFamily>& microscaling_families();
const std::vector<NamedFamily>& recurrent_families();
const std::vector<NamedFamily>& vocabulary_loss_families();
const std::vector<NamedFamily>& sparse_attention_families();
const std::vector<NamedFamily>& indexer_families();

// The bits of a dropout mask, the lowest of each byte first, as booleans of a shape.
at::Tensor unpacked_bits(const at::Tensor& mask, at::IntArrayRef sizes);

// float32, or float64 if the tensor is; an undefined tensor as it is.
at::Tensor widened(const at::Tensor& tensor);

// The whole part of a quotient; a divisor below 1, such as a size of an empty tensor, is an error of the
// call.
int64_t quotient(int64_t value, int64_t divisor, const char* name);

// Parts of equal sizes along a dimension, whose size must be a multiple of their number.
std::vector<at::Tensor> equal_parts(const at::Tensor& tensor, int64_t count, int64_t dim);

// The last `count` dimensions.
std::vector<int64_t> last_dims(int64_t count);

// value * scale + offset, or value / scale + offset; an undefined scale is 1, an undefined offset 0.
at::Tensor affine(const at::Tensor& value, const at::Tensor& scale, const at::Tensor& offset, bool divide);

// The largest value of a dtype that is quantised to.
double quantised_max(at::ScalarType dtype);

// Rounds half to even, or as the mode says ("rint", "round", "floor", "ceil", "trunc"), saturates to the
// dtype of the output, and gives it.
void give_quantised(const Call& call, const char* name, const at::Tensor& value,
                    const std::string& mode = "rint");

// Values quantised with a scale for each slice along dims: the largest magnitude becomes quantised_max.
struct Dynamic {
  at::Tensor value, scale;
};
Dynamic dynamically(const at::Tensor& value, at::IntArrayRef dims, double largest);

// One half of the last dimension gates the other: mode 0 with silu; 1 and 2 with clamps and a slope, 1 on
// alternating columns. The gate is the first half if the call's activate_left is true.
at::Tensor gated(const Call& call, const at::Tensor& x, int64_t mode);

// Refuses a round_mode other than rint.
void check_rint(const Call& call);

// Casts x to 8-bit floats with one power of two for each `size` elements along the axis, so that the exponent
// of the largest becomes the dtype's largest; values beyond saturate. Gives y, and the scales as
// float8_e8m0fnu, two blocks in the last dimension: 2^-127 for a block of zeros, NaN for one that is not
// finite. Source: OCP Microscaling Formats 1.0, section 6.3.
void give_microscaled(const Call& call, const char* y, const char* scale, const at::Tensor& x, int64_t axis,
                      int64_t size);

// Ends of the groups of rows that a list of ends, or of counts, names; none is beyond `rows`.
std::vector<int64_t> group_ends(const at::Tensor& groups, bool counts, int64_t rows);

// Row i of `per_group` for each row of group i; zeros for rows of no group.
at::Tensor per_row(const at::Tensor& per_group, const std::vector<int64_t>& ends, int64_t rows);

// The targets, of which those that the lengths keep must be classes of the last dimension of log_probs.
at::Tensor ctc_targets(const at::Tensor& targets, const at::Tensor& log_probs, at::IntArrayRef lengths);

// x * cos + (x with its halves (a, b) as (-b, a)) * sin
at::Tensor rotated_halves(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

}  // namespace isthmus::ascend
