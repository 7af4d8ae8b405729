"""The device comes from an argparse default, a --no-cuda switch and an environment variable that is not set."""

# answer: True True
# answer: False False
# answer: True
# answer: True
# answer: False
import argparse
import os

import torch


def parse(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", type=str, default="cuda")
    parser.add_argument("--no-cuda", action="store_true", default=False)
    args = parser.parse_args(argv)
    args.cuda = not args.no_cuda and torch.cuda.is_available()
    if not args.cuda:
        args.device = "cpu"
    return args


def env_device(name="DEMO_TRAIN_DEVICE"):
    return os.environ.get(name, "cuda" if torch.cuda.is_available() else "cpu")


for argv in ([], ["--no-" + "cuda"]):
    args = parse(argv)
    model = torch.nn.Linear(2, 1).to(args.device)
    print(args.cuda, next(model.parameters()).is_cuda)
os.environ.pop("DEMO_TRAIN_DEVICE", None)
print(torch.zeros(1, device=env_device()).is_cuda)
print(torch.zeros(1, device=parse(["--device", "cuda:0"]).device).is_cuda)
os.environ["DEMO_TRAIN_DEVICE"] = "cpu"
print(torch.zeros(1, device=env_device()).is_cuda)
