"""The script that torch_npu's profiler looks for beside the command ``msprof``."""

from isthmus_ascend.msprof import main

main()
