// Operators with bool results.
#include "loop.h"
#include "tables.h"

namespace sample {
namespace {

using Context = isthmus_context*;
using In = const DLTensor*;
using Out = DLTensor*;

#define SAMPLE_COMPARISON(name, sign)                                                             \
  isthmus_status name(Context, In self, In other, Out out) {                                      \
    return all_types(self, [&](auto type) {                                                       \
      using T = decltype(type);                                                                   \
      return map<bool, T, T>(out, {self, other}, [](auto a, auto b) { return a sign b; });        \
    });                                                                                           \
  }                                                                                               \
  isthmus_status name##_scalar(Context, In self, isthmus_scalar other, Out out) {                 \
    return all_types(self, [&](auto type) {                                                       \
      using T = decltype(type);                                                                   \
      using Value = Compute<T>;                                                                   \
      if (std::is_integral_v<Value> && other.kind == ISTHMUS_SCALAR_FLOAT) {                      \
        return map<bool, T>(out, {self},                                                          \
                            [=](auto a) { return static_cast<double>(a) sign other.as_double; }); \
      }                                                                                           \
      /* The number has the tensor's precision. */                                                \
      const auto limit = load(store<T>(number<Value>(other)));                                    \
      return map<bool, T>(out, {self}, [=](auto a) { return a sign limit; });                     \
    });                                                                                           \
  }
SAMPLE_COMPARISON(eq, ==)
SAMPLE_COMPARISON(ne, !=)
SAMPLE_COMPARISON(lt, <)
SAMPLE_COMPARISON(le, <=)
SAMPLE_COMPARISON(gt, >)
SAMPLE_COMPARISON(ge, >=)
#undef SAMPLE_COMPARISON

#define SAMPLE_LOGICAL(name, expression)                                                     \
  isthmus_status name(Context, In self, In other, Out out) {                                 \
    return all_types(self, [&](auto type) {                                                  \
      using T = decltype(type);                                                              \
      return map<bool, T, T>(out, {self, other}, [](auto a, auto b) { return expression; }); \
    });                                                                                      \
  }
SAMPLE_LOGICAL(logical_and, a != 0 && b != 0)
SAMPLE_LOGICAL(logical_or, a != 0 || b != 0)
#undef SAMPLE_LOGICAL

isthmus_status logical_not(Context, In self, Out out) {
  return all_types(
      self, [&](auto type) { return map<bool, decltype(type)>(out, {self}, [](auto x) { return x == 0; }); });
}

}  // namespace

const std::vector<isthmus_operator>& comparison_operators() {
  static const std::vector<isthmus_operator> operators = {
      ISTHMUS_OPERATOR(aten_logical_not, logical_not, kAll, kStrided),
      ISTHMUS_OPERATOR(aten_eq_Tensor, eq, kAll, kStrided),
      ISTHMUS_OPERATOR(aten_ne_Tensor, ne, kAll, kStrided),
      ISTHMUS_OPERATOR(aten_lt_Tensor, lt, kAll, kStrided),
      ISTHMUS_OPERATOR(aten_le_Tensor, le, kAll, kStrided),
      ISTHMUS_OPERATOR(aten_gt_Tensor, gt, kAll, kStrided),
      ISTHMUS_OPERATOR(aten_ge_Tensor, ge, kAll, kStrided),
      ISTHMUS_OPERATOR(aten_eq_Scalar, eq_scalar, kAll, kStrided),
      ISTHMUS_OPERATOR(aten_ne_Scalar, ne_scalar, kAll, kStrided),
      ISTHMUS_OPERATOR(aten_lt_Scalar, lt_scalar, kAll, kStrided),
      ISTHMUS_OPERATOR(aten_le_Scalar, le_scalar, kAll, kStrided),
      ISTHMUS_OPERATOR(aten_gt_Scalar, gt_scalar, kAll, kStrided),
      ISTHMUS_OPERATOR(aten_ge_Scalar, ge_scalar, kAll, kStrided),
      ISTHMUS_OPERATOR(aten_logical_and, logical_and, kAll, kStrided),
      ISTHMUS_OPERATOR(aten_logical_or, logical_or, kAll, kStrided),
  };
  return operators;
}

}  // namespace sample
