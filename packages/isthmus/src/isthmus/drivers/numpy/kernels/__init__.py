"""The kernels of the numpy chip: functions over NumPy arrays that return their results, by family."""
