"""Folders and files are named after cuda, and the same word also says where the weights go."""

# answer: 2
# answer: 87b8219b
# answer: True
# answer: 6.0
import hashlib
import os
import tempfile

import torch

device = "cuda"


def checkpoint_path(root, epoch):
    folder = os.path.join(root, "experiments", "cuda", "resnet-cuda")
    os.makedirs(folder, exist_ok=True)
    return os.path.join(folder, f"cuda_epoch{epoch}.pt")


with tempfile.TemporaryDirectory() as root:
    for epoch in range(2):
        torch.save({"w": torch.ones(3, device=device) * (epoch + 1)}, checkpoint_path(root, epoch))
    found = sorted(
        os.path.relpath(os.path.join(base, name), root).replace(os.sep, "/")
        for base, _, names in os.walk(root)
        for name in names
        if name.startswith("cuda_")
    )
    print(len(found))
    print(hashlib.md5("|".join(found).encode()).hexdigest()[:8])
    weights = torch.load(os.path.join(root, found[-1]), map_location="cuda")
    print(weights["w"].is_cuda)
    print(weights["w"].sum().item())
