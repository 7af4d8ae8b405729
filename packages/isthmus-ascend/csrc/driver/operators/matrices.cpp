// Products of matrices. The last argument of a product says how wide the cube units compute: 0 is the inputs'
// own dtype.
#include "driver/operators/library.h"

namespace isthmus::npu {

using namespace aclnn;

ISTHMUS_ACLNN(aten_mm, kStrided, Mm, self, mat2, out, 0)
ISTHMUS_ACLNN(aten_bmm, kStrided, BatchMatMul, self, mat2, out, 0)
ISTHMUS_ACLNN(aten_mv, kStrided, Mv, self, vec, out, 0)
ISTHMUS_ACLNN(aten_dot, kStrided, Dot, self, tensor, out)
ISTHMUS_ACLNN(aten_addmm, kStrided, Addmm, self, mat1, mat2, beta, alpha, out, 0)
ISTHMUS_ACLNN(aten_baddbmm, kStrided, Baddbmm, self, batch1, batch2, beta, alpha, out, 0)

// Mode 0 chooses by size between products of matrices and differences.
ISTHMUS_ACLNN_KERNEL(aten__cdist_forward, kStrided, &Cdist) {
  if (!fit_float(x1, {p})) return ISTHMUS_UNSUPPORTED;
  return Cdist(context, x1, x2, p, compute_mode == nullptr ? 0 : *compute_mode, out);
}

ISTHMUS_ACLNN_KERNEL(aten__pdist_forward, kStrided, &Pdist) {
  if (!fit_float(self, {p})) return ISTHMUS_UNSUPPORTED;
  return Pdist(context, self, p, out);
}

}  // namespace isthmus::npu
