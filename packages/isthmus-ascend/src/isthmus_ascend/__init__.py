"""An Ascend machine without a card: the host chip under AscendCL's names, for the vendor's own torch_npu."""
