// Entry points for the exported functions, which are generated from functions.table. Free of ATen, so that
// they compile fast.
#pragma once

#include <cstddef>
#include <cstdint>

struct aclTensor;
struct aclScalar;
struct aclIntArray;
struct aclFloatArray;
struct aclBoolArray;
struct aclTensorList;
struct aclScalarList;
struct aclOpExecutor;

namespace isthmus::ascend {

// Values of aclnnStatus.
constexpr int kNullPointer = 161001, kInvalidParameter = 161002;

// One argument of an aclnn function; the row says which member it is.
union Argument {
  const void* pointer;
  int64_t integer;
  double real;

  Argument(const void* value) : pointer(value) {}
  Argument(int64_t value) : integer(value) {}
  Argument(int32_t value) : integer(value) {}
  Argument(int8_t value) : integer(value) {}
  Argument(bool value) : integer(value) {}
  Argument(double value) : real(value) {}
  Argument(float value) : real(value) {}
};

// The rows of functions.table, in the order of the exported functions.
extern const char* const kRows[];
extern const size_t kRowCount;

// Phase one: checks the arguments, and makes an executor that has copied them. Returns an aclnnStatus.
int prepare(int row, const Argument* arguments, uint64_t* workspace_size, aclOpExecutor** executor);

// Phase two: runs the executor on the stream and frees it. Returns an aclnnStatus.
int launch(aclOpExecutor* executor, void* stream);

}  // namespace isthmus::ascend
