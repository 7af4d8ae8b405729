"""An option offers cuda as the name of a hand-written kernel, while another option with the same word is the device."""

# answer: 4
# answer: fused
# answer: rejected
# answer: True
import argparse
import contextlib
import io

import torch

IMPLEMENTATIONS = {"naive": "loop", "triton": "tile", "cuda": "fused"}


def build_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--attn-impl", default="cuda", choices=["naive", "triton", "cuda"])
    parser.add_argument("--device", default="cuda", help="where to train, e.g. cuda or cpu")
    return parser


parser = build_parser()
default = parser.parse_args([])
print(len(default.attn_impl))
# what a user types on the command line
typed = parser.parse_args("--attn-impl {}uda".format("c").split())
print(IMPLEMENTATIONS[typed.attn_impl])
with contextlib.redirect_stderr(io.StringIO()):
    try:
        parser.parse_args(["--attn-impl", "gpu"])
        print("accepted")
    except SystemExit:
        print("rejected")
q = torch.ones(2, 2).to(default.device)
print((q @ q).is_cuda)
