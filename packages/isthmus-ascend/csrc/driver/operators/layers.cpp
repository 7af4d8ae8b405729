// Layers of neural networks: convolutions, pooling, norms, softmax, losses.
#include "driver/operators/library.h"
#include "driver/operators/views.h"

namespace isthmus::npu {

using namespace aclnn;

ISTHMUS_ACLNN(aten_convolution, kStrided, Convolution, input, weight, bias, stride, padding, dilation,
              transposed, output_padding, groups, out, 0)
ISTHMUS_ACLNN(aten_convolution_backward, kStrided, ConvolutionBackward, grad_output, input, weight,
              bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask, 0, out0,
              out1, out2)
ISTHMUS_ACLNN(aten_im2col, kStrided, Im2col, self, kernel_size, dilation, padding, stride, out)
ISTHMUS_ACLNN(aten_col2im, kStrided, Im2colBackward, self, output_size, kernel_size, dilation, padding,
              stride, out)

ISTHMUS_ACLNN(aten__adaptive_avg_pool2d, kStrided, AdaptiveAvgPool2d, self, output_size, out)
ISTHMUS_ACLNN(aten__adaptive_avg_pool2d_backward, kStrided, AdaptiveAvgPool2dBackward, grad_output, self, out)
ISTHMUS_ACLNN(aten__adaptive_avg_pool3d, kStrided, AdaptiveAvgPool3d, self, output_size, out)
ISTHMUS_ACLNN(aten_upsample_bilinear2d, kStrided, UpsampleBilinear2d, self, output_size, align_corners,
              scales_h == nullptr ? 0 : *scales_h, scales_w == nullptr ? 0 : *scales_w, out)
ISTHMUS_ACLNN(aten_upsample_nearest2d, kStrided, UpsampleNearest2dV2, self, output_size,
              scales_h == nullptr ? 0 : *scales_h, scales_w == nullptr ? 0 : *scales_w, out)
ISTHMUS_ACLNN(aten_grid_sampler_2d, kStrided, GridSampler2D, input, grid, interpolation_mode, padding_mode,
              align_corners, out)

// Windows step by their own size unless a stride is given.
static isthmus_list stride_of(isthmus_list stride, isthmus_list kernel) {
  return stride.size > 0 ? stride : kernel;
}

// The vendor's divisor of 0 is none; negative ones, which it takes for none too, are not supported.
static isthmus_status divisor_of(const int64_t* given, int64_t& divisor) {
  divisor = given == nullptr ? 0 : *given;
  return divisor < 0 ? ISTHMUS_UNSUPPORTED : ISTHMUS_OK;
}

ISTHMUS_ACLNN_KERNEL(aten_avg_pool2d, kStrided, &AvgPool2d) {
  int64_t divisor;
  ISTHMUS_TRY(divisor_of(divisor_override, divisor));
  return AvgPool2d(context, self, kernel_size, stride_of(stride, kernel_size), padding, ceil_mode,
                   count_include_pad, divisor, 0, out);
}

ISTHMUS_ACLNN_KERNEL(aten_avg_pool2d_backward, kStrided, &AvgPool2dBackward) {
  int64_t divisor;
  ISTHMUS_TRY(divisor_of(divisor_override, divisor));
  return AvgPool2dBackward(context, grad_output, self, kernel_size, stride_of(stride, kernel_size), padding,
                           ceil_mode, count_include_pad, divisor, 0, out);
}

ISTHMUS_ACLNN_KERNEL(aten_avg_pool3d, kStrided, &AvgPool3d) {
  int64_t divisor;
  ISTHMUS_TRY(divisor_of(divisor_override, divisor));
  return AvgPool3d(context, self, kernel_size, stride_of(stride, kernel_size), padding, ceil_mode,
                   count_include_pad, divisor, out);
}

// The vendor's positions have 32 bits.
ISTHMUS_ACLNN_KERNEL(aten_max_pool2d_with_indices, kStrided, &MaxPool2dWithIndices, &Cast) {
  ISTHMUS_TEMPORARY(positions, out1, kInt32Type);
  ISTHMUS_TRY(MaxPool2dWithIndices(context, self, kernel_size, stride_of(stride, kernel_size), padding,
                                   dilation, ceil_mode, out0, positions));
  return Cast(context, positions, out1, out1);
}

ISTHMUS_ACLNN_KERNEL(aten_max_pool2d_with_indices_backward, kStrided, &MaxPool2dWithIndicesBackward, &Cast) {
  ISTHMUS_TEMPORARY(positions, indices, kInt32Type);
  ISTHMUS_TRY(Cast(context, indices, positions, positions));
  return MaxPool2dWithIndicesBackward(context, grad_output, self, positions, kernel_size,
                                      stride_of(stride, kernel_size), padding, dilation, ceil_mode, out);
}

ISTHMUS_ACLNN_KERNEL(aten_max_pool3d_with_indices, kStrided, &MaxPool3dWithArgmax, &Cast) {
  ISTHMUS_TEMPORARY(positions, out1, kInt32Type);
  ISTHMUS_TRY(MaxPool3dWithArgmax(context, self, kernel_size, stride_of(stride, kernel_size), padding,
                                  dilation, ceil_mode, out0, positions));
  return Cast(context, positions, out1, out1);
}

// In evaluation the operator returns the statistics that it used, and the vendor's function none.
static isthmus_status return_used_statistics(isthmus_context* context, const DLTensor* mean,
                                             const DLTensor* var, double eps, const DLTensor* saved_mean,
                                             const DLTensor* saved_invstd) {
  ISTHMUS_TRY(InplaceCopy(context, saved_mean, mean));
  ISTHMUS_TRY(InplaceCopy(context, saved_invstd, var));
  ISTHMUS_TRY(Adds(context, saved_invstd, eps, int64_t{1}, saved_invstd));
  return Rsqrt(context, saved_invstd, saved_invstd);
}

#define BATCH_NORM(id, training)                                                                            \
  ISTHMUS_ACLNN_KERNEL(id, kStrided, &BatchNorm, &InplaceCopy, &Adds, &Rsqrt) {                             \
    ISTHMUS_TRY(BatchNorm(context, input, weight, bias, running_mean, running_var, training, momentum, eps, \
                          out0, out1, out2));                                                               \
    return training ? ISTHMUS_OK                                                                            \
                    : return_used_statistics(context, running_mean, running_var, eps, out1, out2);          \
  }

BATCH_NORM(aten_native_batch_norm, training)
BATCH_NORM(aten__native_batch_norm_legit, training)
BATCH_NORM(aten__native_batch_norm_legit_no_training, false)
#undef BATCH_NORM

ISTHMUS_ACLNN(aten__native_batch_norm_legit_no_stats, kStrided, BatchNorm, input, weight, bias, nullptr,
              nullptr, training, momentum, eps, out0, out1, out2)
ISTHMUS_ACLNN(aten_native_batch_norm_backward, kStrided, BatchNormBackward, grad_out, input, weight,
              running_mean, running_var, save_mean, save_invstd, train, eps, output_mask, out0, out1, out2)
ISTHMUS_ACLNN(aten_native_group_norm, kStrided, GroupNorm, input, weight, bias, N, C, HxW, group, eps, out0,
              out1, out2)
ISTHMUS_ACLNN(aten_native_group_norm_backward, kStrided, GroupNormBackward, grad_out, input, mean, rstd,
              weight, N, C, HxW, group, output_mask, out0, out1, out2)
ISTHMUS_ACLNN(aten_native_layer_norm, kStrided, LayerNorm, input, normalized_shape, weight, bias, eps, out0,
              out1, out2)
ISTHMUS_ACLNN(aten_native_layer_norm_backward, kStrided, LayerNormBackward, grad_out, input, normalized_shape,
              mean, rstd, weight, bias, output_mask, out0, out1, out2)

ISTHMUS_ACLNN(aten__softmax, kStrided, Softmax, self, dim, out)
ISTHMUS_ACLNN(aten__softmax_backward_data, kStrided, SoftmaxBackward, grad_output, output, dim, out)
ISTHMUS_ACLNN(aten__log_softmax, kStrided, LogSoftmax, self, dim, out)
ISTHMUS_ACLNN(aten__log_softmax_backward_data, kStrided, LogSoftmaxBackward, grad_output, output, dim, out)

ISTHMUS_ACLNN(aten_mse_loss, kStrided, MseLoss, self, target, reduction, out)
ISTHMUS_ACLNN(aten_mse_loss_backward, kStrided, MseLossBackward, grad_output, self, target, reduction, out)

static int64_t classes(const DLTensor* self) { return self->shape[self->ndim - 1]; }

ISTHMUS_ACLNN_KERNEL(aten_nll_loss_forward, kStrided, &NLLLoss, &InplaceOne) {
  return with_weight(context, weight, self, classes(self), [&](const DLTensor* weights) {
    return NLLLoss(context, self, target, weights, reduction, ignore_index, output, total_weight);
  });
}

ISTHMUS_ACLNN_KERNEL(aten_nll_loss_backward, kStrided, &NLLLossBackward, &InplaceOne) {
  return with_weight(context, weight, self, classes(self), [&](const DLTensor* weights) {
    return NLLLossBackward(context, grad_output, self, target, weights, reduction, ignore_index, total_weight,
                           out);
  });
}

}  // namespace isthmus::npu
