"""Stand-ins for what the wheels of torchvision and torchaudio have only in libraries that need CUDA's."""

import sys

from isthmus_common.after_import import when_imported


def _nms(boxes, scores, iou_threshold):
    """Return indices of boxes (N, 4), xyxy, kept by greedy suppression, in descending order of score."""
    import torch

    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    order, kept = scores.argsort(descending=True, stable=True), []
    while order.numel():
        first, order = order[0], order[1:]
        kept.append(first)
        low = torch.maximum(boxes[first, :2], boxes[order, :2])
        high = torch.minimum(boxes[first, 2:], boxes[order, 2:])
        shared = (high - low).clamp(min=0).prod(1)
        order = order[shared / (areas[first] + areas[order] - shared) <= iou_threshold]
    return torch.stack(kept) if kept else order


def _torch():
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.impl("nms", _nms, "CompositeExplicitAutograd")
    sys.modules[__name__].library = library


def _torchvision():
    sys.modules["torchvision.extension"]._has_ops = lambda: True


def _torchaudio():
    """Let it find no library, as in a build without one."""
    from pathlib import Path

    sys.modules["torchaudio._extension.utils"]._LIB_DIR = Path(__file__).parent


when_imported("torch", _torch)
when_imported("torchvision", _torchvision)
when_imported("torchaudio._extension.utils", _torchaudio)
