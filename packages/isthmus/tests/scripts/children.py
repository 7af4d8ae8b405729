"""Starts Python children in some or all usual ways; each must see a GPU."""
# ruff: noqa - written as its author would

import multiprocessing
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

import torch
import torch.multiprocessing


def on_gpu(value):
    x = torch.full((1,), float(value), device="cuda")
    return x.is_cuda and x.device.type == "cuda", x.item()


def spawned(rank, results):
    results.put({rank: on_gpu(rank)})


if __name__ == "__main__":
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        print("pool", list(pool.map(on_gpu, [3])))
    if "all" in sys.argv:
        results = multiprocessing.get_context("spawn").SimpleQueue()
        torch.multiprocessing.spawn(spawned, args=(results,), nprocs=1)
        print("spawn", results.get())
    script = [sys.executable, "-u", __file__.replace("children.py", "facts.py"), "child"]
    print("script", subprocess.run(script, capture_output=True, text=True, check=True).stdout, end="")
    code = "import sys, torch; x = torch.ones(1).cuda(); print(x.is_cuda, sys.argv, sys.flags.bytes_warning)"
    for argv, text in (
        (["-c", code, "-c"], None),
        (["-W", "ignore", "-bc" + code], None),
        (["-b", "-", "a"], code),
        ([], code),
    )[slice(None) if "all" in sys.argv else slice(1, 2)]:
        done = subprocess.run([sys.executable, *argv], input=text, capture_output=True, text=True)
        print("command", done.stdout or done.stderr, end="")
