"""A library of operators that need different preparation by the route."""

import numpy as np

from isthmus.opset.dtypes import ALL, FLOATS, NUMBERS
from isthmus.opset.library import Context, Library, Unsupported

library = Library("first", "a few operators by NumPy")


@library.operator("aten::add.Tensor", dtypes=NUMBERS, strided=True, in_place=True)
def add(self, other, alpha, out):
    out[...] = self + np.asarray(alpha).astype(self.dtype) * other


@library.operator("aten::mm", dtypes=("float32",))
def mm(self, mat2, out):
    assert self.flags.c_contiguous and mat2.flags.c_contiguous and out.flags.c_contiguous
    np.matmul(self, mat2, out=out)


@library.operator("aten::eq.Scalar", dtypes=ALL, strided=True)
def eq(self, other, out):
    np.equal(self, other, out=out)


@library.operator("aten::sin", dtypes=FLOATS, strided=True)
def sin(self, out):
    out[...] = np.sin(self.astype(np.float32))


@library.operator("aten::cat", dtypes=NUMBERS, strided=True)
def cat(tensors, dim, out):
    out[...] = np.concatenate(tensors, axis=dim)


@library.operator("aten::_foreach_mul.Scalar", dtypes=FLOATS, strided=True, in_place=True)
def foreach_mul(self, scalar, out):
    for tensor, result in zip(self, out, strict=True):
        np.multiply(tensor, scalar, out=result)


@library.operator("aten::native_layer_norm", dtypes=FLOATS)
def layer_norm(input, normalized_shape, weight, bias, eps, out, mean, rstd):
    if input.ndim != 2 or len(normalized_shape) != 1:
        raise Unsupported
    mean[...] = input.mean(axis=1, keepdims=True)
    rstd[...] = 1 / np.sqrt(input.var(axis=1, keepdims=True) + eps)
    normalized = (input - mean) * rstd
    out[...] = normalized * (1 if weight is None else weight) + (0 if bias is None else bias)


@library.operator("aten::exp", dtypes=("float32",))
def exp(self, out):
    raise ValueError("exp is out of order")


@library.operator("aten::bernoulli_.float", dtypes=FLOATS, strided=True)
def bernoulli(self, p, *, context: Context):
    self[...] = np.random.default_rng(context.seed).random(self.shape) < p


@library.operator("aten::cumsum", dtypes=("float32",))
def cumsum(self, dim, out, *, context: Context):
    if context.workspace(64) % 8:
        raise MemoryError("the workspace is not aligned")
    np.cumsum(self, axis=dim, out=out)
