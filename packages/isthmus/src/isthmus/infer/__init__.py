"""``isthmus infer``: run an exported model (.pt2 or .onnx) on an accelerator, and measure it."""
