"""``isthmus infer``: exported programs and their files of tensors."""

from __future__ import annotations

import io
import json
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner, Result

from isthmus.infer import archive, tensors
from isthmus.infer.loading import load
from isthmus.infer.model import InferError
from isthmus.infer.program_check import is_expression
from isthmus_common.application import app


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.arange(4.0))

    def forward(self, x: Tensor, ids: Tensor, factor: int) -> dict[str, Tensor]:
        return {"scaled": x * self.weight * factor, "picked": self.weight[ids]}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.pt2"
    batch = torch.export.Dim("batch", max=64)
    program = torch.export.export(
        Scale().to("chip"),
        (torch.ones(2, 4, device="chip"), torch.ones(3, dtype=torch.int64, device="chip"), 3),
        dynamic_shapes={"x": {0: batch}, "ids": None, "factor": None},
    )
    torch.export.save(program, path)
    return path


def infer(*words: object) -> Result:
    return CliRunner().invoke(app, ["infer", *map(str, words), "--iterations", "2", "--warmup", "0"])


def test_outputs_are_written_and_compared_on_the_chip_and_the_cpu(model: Path, tmp_path: Path) -> None:
    x, ids = torch.randn(5, 4), torch.tensor([0, 2, 3])
    np.savez(tmp_path / "in.npz", x=x, ids=ids)
    outputs = tmp_path / "out.safetensors"
    result = infer(model, "--inputs", tmp_path / "in.npz", "--output", outputs)
    assert result.exit_code == 0, result.output
    assert "exported program on chip:0" in result.stdout
    for device in ("cpu", "chip:1"):
        result = infer(model, "--inputs", tmp_path / "in.npz", "--device", device, "--compare", outputs)
        assert result.exit_code == 0, result.output
        assert f"on {device}" in result.stdout
        assert "compare: scaled: largest error 0; equal" in result.stdout
    from safetensors.torch import load_file

    written = load_file(outputs)
    assert torch.equal(written["scaled"], x * torch.arange(4.0) * 3)
    assert written["picked"].tolist() == [0, 2, 3]
    assert outputs.stat().st_mode & 0o777 == 0o640


def test_random_inputs_have_the_declared_shapes_and_the_given_batch(model: Path, tmp_path: Path) -> None:
    result = infer(model, "--batch", 6, "--json", "--output", tmp_path / "out.npz")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["batch"], report["iterations"], report["device"]) == (6, 2, "chip:0")
    assert 0 < report["p50_ms"] <= report["p90_ms"] <= report["p99_ms"]
    assert report["samples_per_s"] == pytest.approx(6 * report["runs_per_s"])
    assert report["peak_memory"] > 0
    assert np.load(tmp_path / "out.npz")["scaled"].shape == (6, 4)
    again = infer(model, "--batch", 6, "--compare", tmp_path / "out.npz")
    assert again.exit_code == 0, again.output


def test_a_difference_beyond_the_tolerance_fails(model: Path, tmp_path: Path) -> None:
    assert infer(model, "--output", tmp_path / "out.npz").exit_code == 0
    arrays = dict(np.load(tmp_path / "out.npz"))
    arrays["scaled"][0, 0] += 0.5
    np.savez(tmp_path / "other.npz", **arrays)
    result = infer(model, "--compare", tmp_path / "other.npz")
    assert result.exit_code == 1
    assert "scaled: largest error 0.5; Tensor-likes are not close" in result.stdout
    np.savez(tmp_path / "lacks.npz", scaled=arrays["scaled"])
    assert (
        "lacks.npz: no tensor 'picked', which the model returns; the file has scaled"
        in infer(model, "--compare", tmp_path / "lacks.npz").stderr
    )
    arrays["scaled"] = arrays["scaled"][:1]
    np.savez(tmp_path / "short.npz", **arrays)
    report = json.loads(infer(model, "--compare", tmp_path / "short.npz", "--json").stdout)
    assert report["compare"]["scaled"]["largest"] is None
    assert infer(model, "--compare", tmp_path / "other.npz", "--rtol", 0, "--atol", 1).exit_code == 0


def test_wrong_inputs_are_named(model: Path, tmp_path: Path) -> None:
    def error(**arrays: object) -> str:
        np.savez(tmp_path / "in.npz", **arrays)
        result = infer(model, "--inputs", tmp_path / "in.npz")
        assert result.exit_code == 1
        return result.stderr

    x, ids = np.ones((2, 4), np.float32), np.ones(3, np.int64)
    assert "in.npz: no tensor 'ids', which the model takes" in error(x=x)
    assert "in.npz: the model has no input 'y'; it takes x, ids" in error(x=x, ids=ids, y=x)
    assert "x is float64 [2, 4]; the model takes float32 [" in error(x=x.astype(np.float64), ids=ids)
    assert "ids is int64 [4]; the model takes int64 [3]" in error(x=x, ids=np.ones(4, np.int64))
    assert " <= 64, 4]" in error(x=np.ones((65, 4), np.float32), ids=ids)
    failed = error(x=x, ids=np.full(3, 99))
    assert failed.startswith(f"isthmus: {model}: ") and failed.count("\n") == 1
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as file:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 50,)}
        )
        file.writestr("x.npy", header.getvalue())
    assert "huge.npz: cannot be read as tensors" in infer(model, "--inputs", tmp_path / "huge.npz").stderr
    assert "cannot be read as tensors" in error(x=np.array([{}], dtype=object), ids=ids)


def test_wrong_files_and_devices_are_named(model: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.pt2").write_bytes(b"PK")
    assert "no such device" in infer(model, "--device", "cuda:0").stderr
    assert "Guard failed: x.size()[0] <= 64" in infer(model, "--batch", 65).stderr
    assert f"input x [{1 << 50}, 4]: " in infer(model, "--batch", 1 << 50).stderr
    assert "--device chip:9: 2 devices available" in infer(model, "--device", "chip:9").stderr
    assert "not a .pt2 archive" in infer(tmp_path / "bad.pt2").stderr
    none = tmp_path / "none"
    for words, line in (
        (["none.pt2"], "none.pt2: No such file or directory; give a .pt2 or .onnx file"),
        ([model, "--inputs", none / "x.npz"], "x.npz: No such file or directory; give a file of tensors"),
        ([model, "--output", none / "x.npz"], "x.npz: No such file or directory; give a writable path"),
    ):
        assert infer(*words).stderr.endswith(f"{line}\n")
    assert "unknown format; expected .pt2 or .onnx" in infer(Path(__file__)).stderr


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".pt2", ".onnx"])
def test_malformed_files_are_one_line(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    npy = b"\x93NUMPY\x01\x00v\x00"
    huge = b"\xff" * 7 + b"\x7f{}"
    for data in (
        b"",
        bytes(64),
        b"text\n",
        b"{}",
        b"PK\x03\x04" + bytes(60),
        npy,
        b"\x80\x04\x95\x00.",
        huge,
    ):
        path.write_bytes(data)
        with pytest.raises(InferError, match=str(path)) as caught:
            tensors.read(path) if suffix in (".npz", ".safetensors") else load(path, torch.device("cpu"))
        assert "\n" not in str(caught.value)
        path.unlink()
    path.mkdir()
    with pytest.raises(InferError, match="Is a directory"):
        tensors.read(path) if suffix in (".npz", ".safetensors") else load(path, torch.device("cpu"))


class Nested(nn.Module):
    def forward(self, x: Tensor) -> tuple[dict[str, object], Tensor]:
        return {"state": [x + 1, None, x.shape[0]], "size": 3}, x * 2


def test_outputs_have_the_names_of_their_places(tmp_path: Path) -> None:
    layer = nn.Linear(4, 4)
    torch.export.save(torch.export.export(Nested(), (torch.ones(2),)), tmp_path / "nested.pt2")
    torch.export.save(torch.export.export(layer, (torch.ones(1, 4),)), tmp_path / "layer.pt2")
    assert infer(tmp_path / "nested.pt2", "--output", tmp_path / "out.npz").exit_code == 0
    assert list(np.load(tmp_path / "out.npz")) == ["0.state.0", "output_4"]
    program = load(tmp_path / "layer.pt2", torch.device("cpu"))
    assert not program.run([torch.ones(1, 4)])[0].requires_grad


def rewrite(model: Path, changed: Path, name: str, data: bytes) -> Path:
    """A copy of an archive with another member, in place of the one of that name."""
    with zipfile.ZipFile(model) as source, zipfile.ZipFile(changed, "w") as target:
        root = source.namelist()[0].partition("/")[0]
        for member in source.namelist():
            if member != f"{root}/{name}":
                target.writestr(member, source.read(member))
        target.writestr(f"{root}/{name}", data)
    return changed


def test_nothing_of_a_strangers_archive_is_executed(model: Path, tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (tmp_path / "touched",)  # type: ignore[return-value]

    pickled = io.BytesIO()
    torch.save((Hostile(),), pickled)
    config = json.dumps({"config": {"weight": {"path_name": "weight_0", "use_pickle": True}}}).encode()
    for name, data in (
        ("data/sample_inputs/model.pt", pickled.getvalue()),
        ("data/weights/model.pt", pickled.getvalue()),
        ("data/constants/MODEL.PT", pickled.getvalue()),
        ("data/weights/model_weights_config.json", config),
        ("data/weights/Model_weights_config.json", b"{}"),
        ("data/constants/custom_obj_0", b"x"),
        ("data/constants/opaque_obj_0/x", b"x"),
        ("../../outside", b"x"),
    ):
        with pytest.raises(InferError, match=r"not loaded|leaves the archive|two members of one name"):
            archive.models(rewrite(model, tmp_path / "changed.pt2", name, data))
    assert not (tmp_path / "touched").exists()


HOSTILE = "__import__('os').abort()"


def test_text_of_a_program_that_pytorch_would_execute_is_refused(model: Path, tmp_path: Path) -> None:
    program = zipfile.ZipFile(model).read(f"{model.stem}/models/model.json").decode()
    for pattern, changed in (
        (r'"expr_str": "[^"]*"', f'"expr_str": "{HOSTILE}"'),
        (r'"guards_code": \[[^]]*\]', f'"guards_code": ["{HOSTILE}"]'),
        (r'"guards_code": \[[^]]*\]', '"guards_code": ["True # \\n"]'),
        (r'"target": "[^"]*"', '"target": "torch.os.abort"'),
        (r'"name": "x"', f'"name": "x={HOSTILE}"'),
    ):
        text, count = re.subn(pattern, changed.replace("\\", "\\\\"), program)
        assert count
        path = rewrite(model, tmp_path / "changed.pt2", "models/model.json", text.encode())
        result = infer(path)
        assert result.exit_code == 1
        assert result.stderr.startswith(
            f"isthmus: {path}: models/model.json has text that PyTorch may execute"
        )
        assert result.stderr.count("\n") == 1


GUARDS = """
L['x'].size()[0] <= 64
Mod(s0, 2) == 0
min(16 + 16*L['k'].size()[3], 64 + 64*L['k'].size()[3]) == (16 + 16*L['k'].size()[3])
(L['x'].size()[0] % 8) == 0 and not (L['x'].size()[0] // 8 == 3 or L['x'].size()[0] >= 1 << 20)
L['cache']['k'][0].size()[1] == L['cache']['layer.0/k v'][1].stride()[1]
L['cache'].keys[0].storage_offset() == 0
L['n'] >= 0 and L['n'] <= L['x'].size()[1]
2.5*torch.sym_float(L['x'].size()[2]) < 100.0
math.ceil(L['x'].size()[0] / 3) == 6 and math.trunc(torch._sym_sqrt(L['x'].size()[0])) != -math.inf
max(1, round(L['f']*0.5), abs(3 - L['x'].size()[0])) ** 2 < 10000
(L['x'].size()[0] if L['x'].size()[0] > 3 else 1) < 9223372036854775807
L['x'].dtype == torch.float32 and L['mask'] is None and L['mode'] == 'fast'
Add(Mul(Integer(16), Symbol('s89', positive=True, integer=True)), Integer(16))
Pow(Symbol('s0', integer=True), Rational(1, 2)) + 2*Max(1, s0)
((s0**2 + 1)**2 + s1**3)**2 + 2**s0 + Pow(Pow(Symbol('s0'), Integer(2)), Rational(1, 2))
RoundDecimal(s0 / 3, 2) + Float(2.5) + (1 << 20 << 10)
"""
HOSTILE_TEXTS = """
exit()
s0.subs(1)
Max('exit()')
().__class__
(lambda: 1)()
[s0 for s0 in s1]
max(1, 2, key=exit)
Max(1, 2, key=exit)
min(1, 2, key=L['x'].size)
Symbol('x', cls=exit)
max(*L['x'])
max(**L)
L['x'].size(exit())
L['x'].size().__class__.__mro__
L['x'].__class__
L['x'].backward()
L['x'].apply_(exit)
L["x'] + exit() + L['x"]
L['x'][exit()]
(exit)(1)
L['x'].size()[0] <= (y := 3)
f"{exit()}"
b'x' == 1
math.__loader__
math.factorial(10)
torch.load('x')
torch.os.abort()
torch.ops.aten.add
__import__
getattr(L, 'x')
print(1)
int.__subclasses__()
9 ** 9 ** 9
9 ** (9999 * 9999)
1 << 99999999999
Pow(Integer(9), Pow(Integer(9), Integer(9)))
((9**1024)**1024)**1024
(9**1024 + s0)**1024
(((1 << 1024)**1024)**1024)**1024
1 << 1024 << 1024
(s0**s1)**s2
(L['x'].size()[0]**L['n'])**2
Max(1, (9**64)**64)
abs((9**64)**64)
torch.sym_sum((9**64)**64, 1)
(-(9**64))**64
Pow(Pow(Pow(Integer(9), Integer(1024)), Integer(1024)), Integer(1024))
Pow(Symbol('x'), Symbol('y'))**2
PowByNatural(LShift(9, 1024), 2)
FloatPow(9**1024, 2.5)
Pow(base=9**1024, exp=1024)
round(5, -9999999999)
RoundDecimal(Integer(5), Integer(-9999999999))
Float(Rational(1, 3), 999999999)
L['x'] == 1; exit()
L['x'] == 1 # x
True) or exit(
await x
"""


def test_only_arithmetic_over_sizes_is_an_expression() -> None:
    assert [text for text in GUARDS.strip().splitlines() if not is_expression(text)] == []
    assert [text for text in HOSTILE_TEXTS.strip().splitlines() if is_expression(text)] == []
    assert not is_expression("True\n") and not is_expression("(" * 10_000) and not is_expression("-" * 10_000)


class KeyValueCache(nn.Module):
    def forward(self, x: Tensor, cache: dict[str, list[Tensor]], mode: str, scale: float) -> Tensor:
        keys = torch.cat([cache["layer.0"][0], x], 1)
        values = torch.cat([cache["layer.0"][1], x], 1)
        if values.shape[1] % 8 == 0 and max(values.shape[1], 4) * 2.5 < 1000 and mode == "fast":
            return nn.functional.scaled_dot_product_attention(x, keys, values, scale=scale)
        return keys


class Rows(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pooled = nn.functional.max_pool2d(x, 3, 2, 1)
        return pooled.unflatten(2, (-1, 2)).flatten(0, 1) if x.shape[2] // 3 * 2 < 64 else x


def test_guards_that_export_wrote_itself_are_checked_at_each_run(tmp_path: Path) -> None:
    auto = torch.export.Dim.AUTO
    past = [torch.randn(2, 15, 4), torch.randn(2, 15, 4)]
    for name, module, arguments, shapes in (
        (
            "cache",
            KeyValueCache(),
            (torch.randn(2, 1, 4), {"layer.0": past}, "fast", 0.5),
            {"x": {0: auto}, "cache": {"layer.0": [{0: auto, 1: auto}] * 2}, "mode": None, "scale": None},
        ),
        ("rows", Rows(), (torch.randn(1, 3, 16, 16),), {"x": {2: auto, 3: auto}}),
        ("strided", nn.Flatten(), (torch.randn(4, 20).t(),), {"input": {0: auto, 1: auto}}),
    ):
        path = tmp_path / f"{name}.pt2"
        program = torch.export.export(module.eval(), arguments, dynamic_shapes=shapes)
        assert program._guards_code or name == "strided"
        torch.export.save(program, path)
        result = infer(path, "--device", "cpu")
        assert result.exit_code == 0, result.output
    model = load(tmp_path / "cache.pt2", torch.device("cpu"))
    x, longer = torch.randn(2, 1, 4), [torch.randn(2, 23, 4), torch.randn(2, 23, 4)]
    keys, values = (torch.cat([each, x], 1) for each in longer)
    expected = nn.functional.scaled_dot_product_attention(x, keys, values, scale=0.5)
    assert torch.equal(model.run([x, *longer])[0], expected)
    with pytest.raises(InferError, match="Guard failed"):
        model.run([x, *past[:1], torch.randn(2, 16, 4)])
