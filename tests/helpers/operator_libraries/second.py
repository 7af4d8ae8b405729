"""A second library of the chip: an operator that the first has too, and a dtype that it lacks."""

import numpy as np

from isthmus.opset.library import Library

library = Library("second", "two operators")


@library.operator("aten::add.Tensor", dtypes=("float32",), strided=True)
def add(self, other, alpha, out):
    out[...] = self + alpha * other


@library.operator("aten::mm", dtypes=("float64",))
def mm(self, mat2, out):
    np.matmul(self, mat2, out=out)
