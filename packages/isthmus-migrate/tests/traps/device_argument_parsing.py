"""An argparse device option is compared as a string, as a torch.device and as an index before use."""

# answer: gpu branch 0 True True
# answer: gpu branch 0 True True
# answer: gpu branch 0 True True
# answer: host branch None False False
# answer: same device True False
import argparse

import torch


def parse(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda:0", choices=["cuda", "cuda:0", "cpu", "auto"])
    parser.add_argument("--no-cuda", action="store_true")
    args = parser.parse_args(argv)
    args.cuda = not args.no_cuda and torch.cuda.is_available()
    if args.device == "auto":
        args.device = "cuda:%d" % torch.cuda.current_device() if args.cuda else "cpu"
    if not args.cuda and args.device.startswith("cuda"):
        args.device = "cpu"
    if args.device == "cuda":
        args.device += ":0"
    return args


def run(argv):
    args = parse(argv)
    kwargs = {"pin_memory": True} if args.cuda else {}
    device = torch.device(args.device)
    x = torch.zeros(2, device=device)
    branch = "gpu branch" if device.type == "cuda" and device == torch.device("cuda:0") else "host branch"
    print(branch, x.device.index, bool(kwargs), device.type == "cuda" != "cpu")


run([])
run(["--device", "cuda"])
run(["--device", "auto"])
run(["--device", "cuda:0", "--no-cuda"])
x = torch.zeros(1).cuda()
print("same device", x.device == torch.device("cuda", 0), x.device == torch.device("cuda"))
