"""Pack and unpack padded batches."""

from isthmus.ops.padding import index_first_axis, index_put_first_axis, pad_input, unpad_input

__all__ = ["index_first_axis", "index_put_first_axis", "pad_input", "unpad_input"]
