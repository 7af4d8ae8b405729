"""``isthmus infer``: run an exported model and measure it."""

from __future__ import annotations

import json
import time
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus_common.exits import fail
from isthmus_common.text import count

if TYPE_CHECKING:
    from torch import Tensor

    from isthmus.infer.measure import Measured
    from isthmus.infer.model import Model
    from isthmus.infer.tensors import Difference


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(infer)


def infer(
    file: Annotated[
        Path,
        typer.Argument(
            help="model.pt2 or model.onnx. A .pt2 may execute code: take it from those whom you trust.",
            show_default=False,
        ),
    ],
    inputs: Annotated[
        Path | None, typer.Option(help="Inputs by name: .npz or .safetensors. Default: random ones.")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Size of the dynamic first dimension.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of random inputs.")] = 0,
    warmup: Annotated[int, typer.Option(min=0, help="Runs before the timed ones.")] = 3,
    iterations: Annotated[int, typer.Option(min=1, help="Timed runs.")] = 20,
    device: Annotated[
        str, typer.Option(help="Such as chip:0 or cpu. Default: the current accelerator.")
    ] = "",
    output: Annotated[
        Path | None, typer.Option(help="Write the outputs by name: .npz or .safetensors.")
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(help="Compare the outputs with those of a file, by name; exit with 1 if they differ."),
    ] = None,
    rtol: Annotated[float | None, typer.Option(help="Relative tolerance. Default: by dtype.")] = None,
    atol: Annotated[float | None, typer.Option(help="Absolute tolerance. Default: by dtype.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run an exported model: latency, throughput, memory; write or compare its outputs.

    Outputs are named by the keys or fields that the model returns (logits, hidden.0), or by position (output_0).
    ONNX names its own.
    """
    if (rtol is None) != (atol is None):
        raise fail("give --rtol and --atol together", 2)
    from isthmus.binaries import NotBuilt

    try:
        from isthmus.infer import tensors
        from isthmus.infer.loading import choose_device, load
        from isthmus.infer.measure import measure
        from isthmus.infer.model import InferError
    except NotBuilt as error:
        raise fail(str(error)) from None
    try:
        for each in filter(None, (inputs, output, compare)):
            tensors.require_format(each)
        reference = tensors.read(compare) if compare is not None else {}
        start = time.perf_counter()
        model = load(file, choose_device(device))
        load_s = time.perf_counter() - start
        given = _inputs(model, inputs, batch, seed)
        measured, results = measure(model, given, warmup, iterations)
        names = model.outputs or [f"output_{i}" for i in range(len(results))]
        found = {name: tensor.cpu() for name, tensor in zip(names, results, strict=True)}
        if output is not None:
            tensors.write(output, found)
        differences = [] if compare is None else tensors.compare(found, reference, compare, rtol, atol)
    except InferError as error:
        raise fail(error) from None
    if as_json:
        print(json.dumps(_as_json(file, model, load_s, measured, differences), indent=2))
    else:
        print(_as_text(file, model, load_s, measured, differences))
    if any(each.reason for each in differences):
        raise typer.Exit(1)


def _inputs(model: Model, file: Path | None, batch: int | None, seed: int) -> list[Tensor]:
    """The inputs of a run, on their devices."""
    from isthmus.infer import tensors
    from isthmus.infer.model import InferError

    if file is not None:
        if batch is not None:
            raise InferError("--batch is for random inputs; those of --inputs have a batch size")
        given = tensors.select(tensors.read(file), model.inputs, file)
    elif model.inputs is None:
        raise InferError("the model does not say what it takes; give --inputs, with its inputs in order")
    else:
        wanted = model.inputs if batch is None else tensors.with_batch(model.inputs, batch)
        given = tensors.random(wanted, seed)
    return [tensor.to(model.place(i)) for i, tensor in enumerate(given)]


def _as_json(
    file: Path, model: Model, load_s: float, measured: Measured, differences: list[Difference]
) -> dict[str, object]:
    compared = {
        each.name: {"largest": each.largest if isfinite(each.largest) else None, "reason": each.reason}
        for each in differences
    }
    return {
        "file": str(file),
        "kind": model.kind,
        "device": str(model.device),
        "load_s": load_s,
        **measured._asdict(),
        "compare": compared,
    }


def _as_text(
    file: Path, model: Model, load_s: float, measured: Measured, differences: list[Difference]
) -> str:
    memory = "allocated on the device" if model.device.type != "cpu" else "resident"
    lines = [
        f"{file}: {model.kind} on {model.device}, loaded in {load_s:.2f} s",
        f"latency: p50 {measured.p50_ms:.3f} ms, p90 {measured.p90_ms:.3f} ms, p99 {measured.p99_ms:.3f} ms "
        f"({count(measured.iterations, 'run')}, batch {measured.batch})",
        f"throughput: {measured.runs_per_s:.1f} runs/s, {measured.samples_per_s:.1f} samples/s",
        f"memory: {measured.peak_memory / 2**20:.1f} MiB {memory} at the peak",
    ]
    for each in differences:
        verdict = each.reason or ("equal" if each.largest == 0 else "within the tolerance")
        lines.append(f"compare: {each.name}: largest error {each.largest:.3g}; {verdict}")
    return "\n".join(lines)
