"""Operators of the older interface for object detectors against their meaning; see older_operators.py."""

import ctypes
import itertools
import math

import torch
from torch.nn.functional import grid_sample

from tests.runtime.older_calls import Tensors, attributes, check
from tests.runtime.older_jobs import compiler
from tests.runtime.runtime import acl


def boxes() -> None:
    """Boxes of detectors, by hand."""
    flags = torch.zeros(6, 2, dtype=torch.uint8)
    flags[4] = 1  # row 1, column 1 of 2 rows and 3 columns
    given = {"featmap_size": [2, 3], "strides": [8, 8], "num_base_anchors": 2}
    inside, outside = [8.0, 6.0, 14.0, 16.0], [90.0, 90.0, 99.0, 99.0]
    check("AnchorResponseFlags", [torch.tensor([inside, outside])], flags.view(-1), **given)
    anchor, truth = torch.tensor([[1.0, 2.0, 4.0, 7.0]]), torch.tensor([[2.0, 1.0, 9.0, 6.0]])
    deltas = torch.tensor([[3 / 4, -1 / 6, math.log(2), 0.0]])
    scale = {"means": [0.5, 0.0, 0.0, 0.0], "stds": [0.1, 0.1, 0.2, 0.2]}
    encoded = (deltas.half().float() - torch.tensor(scale["means"])) / torch.tensor(scale["stds"])
    encoded = encoded.half().float()  # the vendor's result has this dtype
    check("BoundingBoxEncode", [anchor, truth], encoded, **scale)
    clip = {"max_shape": [20, 30], "wh_ratio_clip": 0.01}
    exact = (deltas - torch.tensor(scale["means"])) / torch.tensor(scale["stds"])
    check("BoundingBoxDecode", [anchor, exact], truth, **scale, **clip)
    first, second = torch.tensor([[0.0], [0.0], [4.0], [2.0]]), torch.tensor([[2.0], [1.0], [4.0], [5.0]])
    iou, hull, distance = 2 / 14, 20, (1**2 + 2**2) / (4**2 + 5**2)
    rule = {"trans": False, "is_cross": False, "mode": "iou"}
    check("GIoU", [first, second], torch.tensor([[iou - (hull - 14) / hull]]), **rule)
    check("DIoU", [first, second], torch.tensor([[iou - distance]]), **rule)
    turn = math.atan(2 / 4) - math.atan(4 / 2)
    v = 4 / math.pi**2 * turn**2
    ciou = torch.tensor([[iou - distance - v * v / (1 - iou + v)]])
    check("CIoU", [first, second], ciou, torch.tensor([[turn]]), **rule, atan_sub_flag=True)
    own, truths = [[2.0], [1.0], [4.0], [2.0]], [[3.0, 2.0], [3.0, 1.0], [2.0, 4.0], [4.0, 2.0]]
    centred = torch.tensor(own), torch.tensor(truths)
    crossed = torch.tensor([[iou - distance], [1.0]])
    check("DIoU", centred, crossed, trans=True, is_cross=True, mode="iou")


def detections() -> None:
    """Overlaps, assignment and suppression of boxes, by hand."""
    boxes = torch.tensor([[0.0, 0.0, 10.0, 10.0], [10.0, 10.0, 20.0, 20.0]])
    truths = torch.tensor([[0.0, 0.0, 10.0, 20.0]])
    single, double = 10.5**2, 10.5 * 20.5
    overlap = torch.tensor([[100 / (single + double - 100), 0.0]])
    check("Iou", [boxes, truths], overlap, mode="iou", eps=0.5)
    check("Iou", [boxes, truths], torch.tensor([[100 / double, 0.0]]), mode="iof", eps=0.5)

    assigned, flags = torch.tensor([0.0, 0.25, 0.5, 0.75]), torch.tensor([1, 1, 1, 0], dtype=torch.uint8)
    overlaps = torch.tensor([[0.8, 0.3, 0.1, 0.9], [0.3, 0.1, 0.3, 0.2]])
    most, where_most = overlaps.max(0)
    ends = overlaps.amax(1), torch.tensor([3, 0]).int()
    given = [assigned, overlaps, flags, most, where_most.int(), *ends]
    limits = {"pos_iou_thr": 0.5, "min_pos_iou": 0.25}
    for count, every, expected in (
        (9, True, [2, 0.25, 2, 0.75]), (9, False, [2, 0.25, 0.5, 0.75]), (1, True, [1, 0.25, 0.5, 0.75]),
    ):  # fmt: skip
        inputs = [*given, torch.tensor(count, dtype=torch.int32)]
        check("GridAssignPositive", inputs, torch.tensor(expected), **limits, gt_max_assign_all=every)

    corners = [[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 4.0, 5.0], [5.0, 5.0, 6.0, 6.0]]
    scores = torch.tensor([[[0.6, 0.9], [0.7, 0.1], [0.5, 0.8]]])
    rule = {
        "score_threshold": 0.3,
        "iou_threshold": 0.5,
        "change_coordinate_frame": False,
        "transpose_box": False,
    }
    nmsed = torch.tensor([[corners[0], corners[2], corners[1], corners[2], [0.0] * 4]])
    best, labels = torch.tensor([[0.9, 0.8, 0.7, 0.5, 0.0]]), torch.tensor([[1.0, 1.0, 0.0, 0.0, 0.0]])
    whole = torch.tensor([corners])[:, :, None]
    for given_boxes in (whole, whole.expand(1, 3, 2, 4)):
        for each, total, count in ((3, 5, 4), (3, 2, 2)):
            found = [nmsed[:, :total], best[:, :total], labels[:, :total], torch.tensor([count]).int()]
            sizes = {"max_size_per_class": each, "max_total_size": total}
            check("BatchMultiClassNonMaxSuppression", [given_boxes, scores], *found, **rule, **sizes)
    first = [nmsed[:, [0, 2]], best[:, [0, 2]], labels[:, [0, 2]], torch.tensor([2]).int()]
    sizes = {"max_size_per_class": 1, "max_total_size": 2}
    check("BatchMultiClassNonMaxSuppression", [whole, scores], *first, **rule, **sizes)


def gradients() -> None:
    """Gradients of overlaps, of pairs that meet, that lie apart and one in the other."""
    low = torch.tensor([[0.0, 1.0], [5.0, 5.0], [1.0, 1.0], [0.0, 0.0]]).double()
    size = torch.tensor([[3.0, 2.0], [1.0, 2.0], [1.5, 1.0], [4.0, 5.0]]).double()
    for trans, is_cross, (name, measure) in itertools.product(
        (False, True), (False, True), (("GIoU", giou), ("DIoU", diou))
    ):
        ends = [low, low + size]
        given = [(low + size / 2), size] if trans else ends
        first = torch.cat(given, 1).T.contiguous().requires_grad_()
        second = (first.detach().roll(1, 1) + 0.25).requires_grad_()

        def sides(boxes: torch.Tensor, trans: bool = trans) -> list[torch.Tensor]:
            x, y, right, down = boxes
            return (
                [x - right / 2, y - down / 2, x + right / 2, y + down / 2] if trans else [x, y, right, down]
            )

        truths = [side[:, None] for side in sides(second)] if is_cross else sides(second)
        overlap = measure(sides(first), truths)
        grad = torch.randn_like(overlap)
        expected = [each.float() for each in torch.autograd.grad(overlap, [first, second], grad)]
        inputs = [each.detach().float() for each in (grad, first, second)]
        check(f"{name}Grad", inputs, *expected, trans=trans, is_cross=is_cross, mode="iou")


def common(first: list[torch.Tensor], second: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Return the intersection over union, the union, and width and height of the hull."""
    sides = [torch.minimum(first[i + 2], second[i + 2]) - torch.maximum(first[i], second[i]) for i in (0, 1)]
    both = sides[0].clamp(0) * sides[1].clamp(0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (first, second)]
    hull = [torch.maximum(first[i + 2], second[i + 2]) - torch.minimum(first[i], second[i]) for i in (0, 1)]
    union = sum(areas) - both
    return both / union, union, *hull


def giou(first: list[torch.Tensor], second: list[torch.Tensor]) -> torch.Tensor:
    """Return the generalised intersection over union of corners."""
    iou, union, width, height = common(first, second)
    return iou - 1 + union / (width * height)


def diou(first: list[torch.Tensor], second: list[torch.Tensor]) -> torch.Tensor:
    """Return the distance intersection over union of corners."""
    iou, _, width, height = common(first, second)
    across, down = ((first[i] + first[i + 2] - second[i] - second[i + 2]) / 2 for i in (0, 1))
    return iou - (across**2 + down**2) / (width**2 + height**2)


def masks() -> None:
    """Suppression with a mask, and codes with a stride."""
    rows = torch.tensor([[0.0, 0.0, 4.0, 5.0, 0.7], [5.0, 5.0, 6.0, 6.0, 0.8], [0.0, 0.0, 4.0, 4.0, 0.9]])
    order, mask = torch.tensor([2, 1, 0]).int(), torch.tensor([1, 1, 0], dtype=torch.uint8)
    check("NMSWithMask", [rows], rows[order], order, mask, iou_threshold=0.5)
    anchors, truths = torch.tensor([[1.0, 2.0, 5.0, 4.0]]), torch.tensor([[2.0, 2.0, 6.0, 1.0]])
    encoded = torch.tensor([[(4.0 - 3.0) / 4 + 0.5, 1e-6, 0.0, math.log(1e-6)]])
    inputs = [anchors, truths, torch.tensor([4]).int()]
    encoded[0, 1] = (1.5 - 3.0) / 4 + 0.5
    check("YoloBoxesEncode", inputs, encoded, performance_mode="high_precision")
    encoded[0, :2] = torch.tensor([1 - 1e-6, 1e-6])
    check("YoloBoxesEncode", [*inputs[:2], inputs[2] // 4], encoded, performance_mode="high_precision")


def rotated() -> None:
    """Rotated boxes: codes, and overlaps by hand."""
    anchor, truth = torch.tensor([1.0, 2.0, 5.0, 4.0, 30.0]), torch.tensor([2.0, 2.0, 4.0, 6.0, -45.0])
    deltas = torch.tensor([0.0, 0.5, math.log(0.5), math.log(2), -1 - math.sqrt(1 / 3)])
    weight = [1.0, 2.0, 3.0, 4.0, 5.0]
    columns = [each.view(1, 5, 1) for each in (anchor, truth, deltas * torch.tensor(weight))]
    check("RotatedBoxEncode", columns[:2], columns[2], weight=weight)
    check("RotatedBoxDecode", [columns[0], columns[2]], columns[1], weight=weight)
    square = [[0.0, 0.0, 2.0, 2.0, 0.0], [3.0, 0.0, 2.0, 4.0, 90.0]]  # centre, size, degrees
    turned = [[0.0, 0.0, 2.0, 2.0, 45.0], [1.0, 1.0, 2.0, 2.0, 180.0], [9.0, 9.0, 1.0, 1.0, 10.0]]
    octagon = 8 * (math.sqrt(2) - 1)
    # The corner of the turned square at (sqrt(2), 0) reaches over x = 1, where the other rectangle begins.
    corner = (math.sqrt(2) - 1) ** 2
    areas = torch.tensor([[[octagon, 1.0, 0.0], [corner, 1.0, 0.0]]])
    boxes = [torch.tensor([each]).transpose(1, 2).contiguous() for each in (square, turned)]
    check("RotatedOverlaps", boxes, areas, trans=False)
    firsts = torch.tensor([4.0, 8.0])[:, None]
    seconds = torch.tensor([4.0, 4.0, 1.0])
    given = {"trans": False, "is_cross": True, "value": 0.0}
    check("RotatedIou", boxes, areas / (firsts + seconds - areas), mode="iou", **given)
    check("RotatedIou", boxes, areas / firsts, mode="iof", **given)
    ends = [[-1.0, -1.0, 1.0, 1.0, 0.0], [1.0, -1.0, 5.0, 1.0, 0.0]]
    others = [[-1.0, -1.0, 1.0, 1.0, -45.0], [0.0, 0.0, 2.0, 2.0, 90.0], [8.5, 8.5, 9.5, 9.5, -10.0]]
    boxes = [torch.tensor([each]).transpose(1, 2).contiguous() for each in (ends, others)]
    check("RotatedOverlaps", boxes, areas, trans=True)


def suppressed() -> None:
    """Suppression of rotated boxes, and the number of those that are left."""
    boxes = torch.tensor(
        [[0.0, 0, 2, 2, 0], [9, 9, 1, 1, 0], [0, 0, 2, 2, 45], [1, 0, 2, 2, 0], [3, 0, 2, 2, 0]]
    )
    scores, label = torch.tensor([0.8, 0.1, 0.9, 0.7, 0.6]), torch.tensor(0).int()
    ends = torch.cat([boxes[:, :2] - boxes[:, 2:4] / 2, boxes[:, :2] + boxes[:, 2:4] / 2, -boxes[:, 4:]], 1)
    rule = {"iou_threshold": 0.4, "score_threshold": 0.2}
    for mode, given in ((0, boxes), (1, ends)):
        for most, kept in ((-1, [2, 3, 4]), (2, [2, 3])):
            index, found = torch.zeros(5).int(), torch.zeros(5, 5)
            index[: len(kept)], found[: len(kept)] = torch.tensor(kept).int(), given[kept]
            inputs = [given, scores, label]
            check("RotatedNMS", inputs, found, index, **rule, max_output_size=most, mode=mode)
            operands, results = Tensors(*inputs), Tensors(found, index)
            handle = attributes(rule | {"max_output_size": most, "mode": mode})
            arguments = *operands.lists(), *results.lists(), handle
            compiler.aclopCompileAndExecuteV2(b"RotatedNMS", *arguments, 0, 0, None, None)
            size = ctypes.c_int64()
            for description in results.descriptions:
                acl.aclGetTensorDescDimV2(description, ctypes.c_size_t(0), ctypes.byref(size))
                assert size.value == len(kept)


def regions() -> None:
    """Regions of a map, by grid_sample() in float64, and of groups of channels, by their pixels."""
    x = torch.randn(2, 3, 7, 6).double().requires_grad_()
    rois = torch.tensor([[1, -4.0, 2.0, 9.0, 12.5], [0, 3.0, 3.0, 3.5, 3.25], [1, 1.0, 1.0, 30.0, 8.0]])
    rows, columns, scale = 2, 3, 0.5
    for mode, samples in itertools.product((0, 1), (2, 0)):
        pooled = []
        for image, *ends in rois.tolist():
            starts = [end * scale for end in ends[:2]]
            sizes = [(ends[i + 2] + mode) * scale - starts[i] for i in (0, 1)]
            sizes = [max(size, 1.0) for size in sizes] if mode == 0 else sizes
            counts = [
                samples or math.ceil(size / bins) for size, bins in zip(sizes, (columns, rows), strict=True)
            ]
            across, down = (
                start + (torch.arange(bins * count).double() + 0.5) * size / (bins * count)
                for start, size, bins, count in zip(starts, sizes, (columns, rows), counts, strict=True)
            )
            inside = ((down >= -1) & (down <= 7))[:, None] & ((across >= -1) & (across <= 6))
            grid = torch.stack(torch.meshgrid(across * 2 / 5 - 1, down * 2 / 6 - 1, indexing="xy"), -1)
            sampled = grid_sample(x[int(image)][None], grid[None], padding_mode="border", align_corners=True)
            bins = (sampled[0] * inside).unflatten(2, (columns, -1)).unflatten(1, (rows, -1))
            pooled.append(bins.mean((2, 4)))
        y = torch.stack(pooled)
        grad = torch.randn_like(y)
        (dx,) = torch.autograd.grad(y, x, grad)
        given = {
            "spatial_scale": scale,
            "pooled_height": rows,
            "pooled_width": columns,
            "sample_num": samples,
        }
        if mode == 0:  # 1 is the default
            given |= {"roi_end_mode": 0}
        check("ROIAlign", [x.detach().float(), rois], y.detach().float(), **given)
        check("ROIAlignGrad", [grad.float(), rois], dx.float(), xdiff_shape=list(x.shape), **given)

    x = torch.randn(2, 2 * 3 * 3, 8, 9).double().requires_grad_()
    rois = torch.tensor([[[1, 2.4, 3.0, 14.0, 11.0], [0, 0.0, 0.0, 30.0, 5.0]],
                         [[0, 40.0, 3.0, 44.0, 5.0], [1, 6.0, 6.0, 6.0, 6.0]]])  # fmt: skip
    pooled = []
    for image, left, top, right, bottom in rois.flatten(0, 1).tolist():
        bins = torch.zeros(2, 3, 3).double()
        for i, j in itertools.product(range(3), range(3)):
            edges = []
            for first, last, k, length in ((top, bottom, i, 8), (left, right, j, 9)):
                start = round(first) * scale
                size = max((round(last) + 1) * scale - start, 0.1) / 3
                edges.append(
                    slice(min(math.floor(start + k * size), length), math.ceil(start + (k + 1) * size))
                )
            bin = x[int(image)].view(2, 3, 3, 8, 9)[:, i, j, edges[0], edges[1]]
            if bin.numel():
                bins[:, i, j] = bin.mean((1, 2))
        pooled.append(bins)
    y = torch.stack(pooled)
    grad = torch.randn_like(y)
    (dx,) = torch.autograd.grad(y, x, grad)
    given = {"spatial_scale": scale, "group_size": 3, "output_dim": 2}
    places = rois.transpose(1, 2).contiguous()
    check("PSROIPoolingV2", [x.detach().float(), places], y.detach().float(), **given)
    check("PSROIPoolingGradV2D", [grad.float(), places], dx.float(), **given, input_size=[8, 9])


def deformed() -> None:
    """Samples of a deformable convolution and their gradients, by grid_sample() in float64."""
    batch, height, width, channels, groups, rows, columns = 2, 6, 7, 4, 2, 3, 2
    kernel, strides, pads, dilations = [3, 2], [1, 2, 3, 1], [1, 0, 2, 0], [1, 1, 2, 1]
    x = torch.randn(batch, height, width, channels).double().requires_grad_()
    shape = (batch, rows, columns, 3, groups, *kernel)
    offsets = torch.randn(shape).double().requires_grad_()
    right, down, scale = offsets.unbind(3)
    across = (
        torch.arange(columns)[:, None, None, None] * strides[2] + torch.arange(2) * dilations[2] - pads[2]
    )
    below = torch.arange(rows)[:, None, None, None, None] * strides[1] - pads[0]
    below = below + torch.arange(3)[:, None] * dilations[1]
    sides = (right + across) * 2 / (width - 1) - 1, (down + below) * 2 / (height - 1) - 1
    points, scale = (
        torch.stack([*sides, scale], -1).permute(0, 3, 1, 4, 2, 5, 6).flatten(0, 1).split([2, 1], -1)
    )
    image = x.unflatten(3, (groups, -1)).permute(0, 3, 4, 1, 2).flatten(0, 1)
    samples = grid_sample(image, points.flatten(1, 2).flatten(2, 3), align_corners=True)
    y = samples * scale.reshape(len(samples), 1, *samples.shape[2:])
    y = y.unflatten(0, (batch, groups)).permute(0, 3, 4, 1, 2).flatten(3)
    grad = torch.randn_like(y)
    dx, doffsets = torch.autograd.grad(y, [x, offsets], grad)
    given = {"ksize": kernel, "strides": strides, "pads": pads, "dilations": dilations,
             "deformable_groups": groups, "data_format": "NHWC", "modulated": True}  # fmt: skip
    inputs = [x.detach().float(), offsets.detach().float().flatten(3)]
    check("DeformableOffsets", inputs, y.detach().float(), **given)
    check("DeformableOffsetsGrad", [grad.float(), *inputs], dx.float(), doffsets.float().flatten(3), **given)


PARTS = (boxes, detections, gradients, masks, rotated, suppressed, regions, deformed)
