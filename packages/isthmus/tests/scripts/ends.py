"""Exit in the way given by the argument."""
# ruff: noqa - written as its author would

import os
import signal
import sys

import torch

how = sys.argv[1]
x = torch.ones(1, device="cuda") + 1


def fail(depth):
    if depth:
        fail(depth - 1)
    raise ValueError("the user's own mistake")


if how == "exit":
    sys.exit(7)
if how == "message":
    sys.exit("a message")
if how == "error":
    fail(1)
if how == "signal":
    os.kill(os.getpid(), signal.SIGTERM)
if how == "interrupt":
    os.kill(os.getpid(), signal.SIGINT)
if how == "hook":
    sys.excepthook = lambda kind, value, trace: print("my hook", kind.__name__, trace.tb_frame.f_code.co_name)
    fail(0)
print("end")
