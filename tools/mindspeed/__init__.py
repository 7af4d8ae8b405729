"""MindSpeed over the reference runtime of AscendCL: training, and its own unit tests; ``make mindspeed``."""
