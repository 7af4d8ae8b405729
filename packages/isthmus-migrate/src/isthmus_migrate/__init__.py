"""Move a project's source from CUDA to any accelerator: analyse it, convert it, verify the conversion."""
