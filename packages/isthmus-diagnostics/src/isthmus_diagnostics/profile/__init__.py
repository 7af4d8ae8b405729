"""Analysis of Chrome traces written by ``torch.profiler`` on any accelerator."""
