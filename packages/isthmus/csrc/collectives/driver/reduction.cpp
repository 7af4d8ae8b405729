#include "collectives/driver/reduction.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/prod.h>
#include <ATen/ops/sum.h>

#include "core/stream.h"

namespace isthmus {
namespace {

bool holds_integers(const at::Tensor& tensor) {
  return at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false);
}

void divide(const at::Tensor& sums, int64_t ranks) {
  if (holds_integers(sums))
    divide_integers(sums, ranks);
  else
    sums.div_(ranks);
}

bool driver_reduces(const Reduction& reduction) {
  if (!ISTHMUS_HAS(driver(), comm_reduces)) return true;
  const isthmus_status status = driver().comm_reduces(reduction.dtype(), reduction.op());
  if (status != ISTHMUS_UNSUPPORTED) check(status, "comm_reduces");
  return status == ISTHMUS_OK;
}

template <typename Operator>
at::Tensor in_order(const at::Tensor& rows, Operator&& combine) {
  at::Tensor result = rows[0];
  for (int64_t rank = 1; rank < rows.size(0); ++rank) result = combine(result, rows[rank]);
  return result;
}

// Row i is of rank i.
at::Tensor reduce_rows(const at::Tensor& rows, isthmus_reduce_op op) {
  const at::ScalarType dtype = rows.scalar_type();
  if (at::isFloat8Type(dtype)) return reduce_rows(rows.to(at::kFloat), op);
  switch (op) {
    case ISTHMUS_AVG: {
      const at::Tensor sums = at::sum(rows, {0}, /*keepdim=*/false, dtype);
      divide(sums, rows.size(0));
      return sums;
    }
    case ISTHMUS_PRODUCT:
      return at::prod(rows, 0, /*keepdim=*/false, dtype);
    case ISTHMUS_MIN:
      return at::amin(rows, {0});
    case ISTHMUS_MAX:
      return at::amax(rows, {0});
    case ISTHMUS_BAND:
      return in_order(rows, [](const at::Tensor& a, const at::Tensor& b) { return a.bitwise_and(b); });
    case ISTHMUS_BOR:
      return in_order(rows, [](const at::Tensor& a, const at::Tensor& b) { return a.bitwise_or(b); });
    case ISTHMUS_BXOR:
      return in_order(rows, [](const at::Tensor& a, const at::Tensor& b) { return a.bitwise_xor(b); });
    default:
      return at::sum(rows, {0}, /*keepdim=*/false, dtype);
  }
}

}  // namespace

DriverReduction::DriverReduction(Launch& launch, const at::Tensor& to, const at::Tensor& from,
                                 const Reduction& reduction, int size, int64_t start)
    : to_(to), from_(from), reduction_(reduction) {
  const bool is_integer_average = reduction.op() == ISTHMUS_AVG && holds_integers(from);  // no driver's
  if (!is_integer_average && driver_reduces(reduction)) return;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const isthmus_reduce_op op = reduction.op();
  if (op == ISTHMUS_PREMUL_SUM) from_ = launch.keep(at::mul(from, reduction.multiplier()));
  if (reduction.is_linear() && driver_reduces(reduction.sum())) {
    reduction_ = reduction.sum();
    if (op == ISTHMUS_AVG && to.defined()) launch.compute_after([to, size] { divide(to, size); });
    return;
  }
  rows_ = launch.room_for(Launch::Tensors(static_cast<size_t>(size), from)).view({size, from.numel()});
  if (!to.defined()) return;
  launch.compute_after([to, op, start, rows = rows_] {
    to.copy_(reduce_rows(rows.narrow(1, start, to.numel()), op).view_as(to));
    rows.record_stream(current_stream(rows.device().index()));
  });
}

void DriverReduction::enqueue(isthmus_comm comm, isthmus_stream stream, const char* name,
                              const Call& call) const {
  const void* const from = from_.const_data_ptr();
  if (rows_.defined()) {
    const auto [dtype, count] = elements_to_move(from_);
    check_collective(driver().all_gather(rows_.mutable_data_ptr(), from, count, dtype, comm, stream), name);
  } else {
    check_collective(call(to_.defined() ? to_.mutable_data_ptr() : nullptr, from, reduction_), name);
  }
}

}  // namespace isthmus
