"""Files of tensors: safetensors, PyTorch's zip, MindSpore's .ckpt.

Each module has ``read(path)``, which returns the tensors without reading their data, and ``create(path, tensors)``,
which writes a file whose data is still a hole, to be filled in any order with :meth:`Stored.write`.
"""
