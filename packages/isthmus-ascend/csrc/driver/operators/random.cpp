// Random numbers and ranges. The context's seed is a new one for each call, so that the offset is always 0.
#include "driver/operators/library.h"
#include "driver/operators/views.h"

namespace isthmus::npu {

using namespace aclnn;

ISTHMUS_ACLNN(aten_arange_start_step, kStrided, Arange, start, end, step, out)
ISTHMUS_ACLNN(aten_linspace, kStrided, Linspace, start, end, steps, out)
ISTHMUS_ACLNN(aten_eye_m, kStrided, Eye, n, m, out)

ISTHMUS_ACLNN(aten_bernoulli, kStrided, InplaceBernoulliTensor, out, self, context->seed, 0)
ISTHMUS_ACLNN(aten_bernoulli__float, kStrided, InplaceBernoulli, self, p, context->seed, 0)
ISTHMUS_ACLNN(aten_normal_, kStrided, InplaceNormal, self, mean, std, context->seed, 0)
ISTHMUS_ACLNN(aten_uniform_, kStrided, InplaceUniform, self, from, to, context->seed, 0)
ISTHMUS_ACLNN(aten_random__to, kStrided, InplaceRandom, self, 0, to, context->seed, 0)
ISTHMUS_ACLNN(aten_randperm, kStrided, Randperm, n, context->seed, 0, out)

// Without an upper limit all numbers of the dtype are meant, which no limit of the vendor's function says.
ISTHMUS_ACLNN_KERNEL(aten_random__from, kStrided, &InplaceRandom) {
  if (to == nullptr) return ISTHMUS_UNSUPPORTED;
  return InplaceRandom(context, self, from, *to, context->seed, 0);
}

ISTHMUS_ACLNN_KERNEL(aten_native_dropout, kStrided, &InplaceCopy, &InplaceOne, &InplaceZero,
                     &InplaceBernoulli, &MaskedScale) {
  if (train != nullptr && !*train) {
    ISTHMUS_TRY(InplaceOne(context, out1));
    return InplaceCopy(context, out0, input);
  }
  if (p == 1) {
    ISTHMUS_TRY(InplaceZero(context, out1));
    return InplaceZero(context, out0);
  }
  ISTHMUS_TRY(InplaceBernoulli(context, out1, 1 - p, context->seed, 0));
  return MaskedScale(context, input, out1, 1 / (1 - p), out0);
}

}  // namespace isthmus::npu
