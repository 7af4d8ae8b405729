"""Reading profiles: the Chrome traces that ``torch.profiler`` writes on any accelerator."""
