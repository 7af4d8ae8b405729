"""The legacy tensor types of ``torch.cuda``, such as ``torch.cuda.FloatTensor``."""

# Name and dtype.
TENSOR_TYPES = {
    "BFloat16Tensor": "bfloat16",
    "BoolTensor": "bool",
    "ByteTensor": "uint8",
    "CharTensor": "int8",
    "DoubleTensor": "float64",
    "FloatTensor": "float32",
    "HalfTensor": "float16",
    "IntTensor": "int32",
    "LongTensor": "int64",
    "ShortTensor": "int16",
}
