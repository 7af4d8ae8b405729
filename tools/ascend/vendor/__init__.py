"""The vendor's own tests of torch_npu and op-plugin, over the reference runtime: ``make ascend-tests``."""
