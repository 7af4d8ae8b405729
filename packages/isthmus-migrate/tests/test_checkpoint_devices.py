"""Numbered devices of checkpoints: `torch.load` refuses ``cpu:0`` on a machine without an accelerator."""

import io

import pytest
import torch

from isthmus_migrate.convert.engine import convert_source

_ON_CPU = "if torch.accelerator.is_available() else 'cpu'"


@pytest.mark.parametrize(
    ("device", "becomes"),
    [
        ("'cuda:0'", f"f'{{DEVICE.type}}:0' {_ON_CPU}"),
        ("f'cuda:{rank}'", f"f'{{DEVICE.type}}:{{rank}}' {_ON_CPU}"),
        ("'cuda:{}'.format(rank)", f"f'{{DEVICE.type}}:{{rank}}' {_ON_CPU}"),
        ("lambda storage, _: storage.cuda(1)", f"torch.device(DEVICE.type, 1) {_ON_CPU}"),
        ("lambda storage, _: storage.cuda(rank)", f"torch.device(DEVICE.type, rank) {_ON_CPU}"),
        ("'cuda:0' if torch.cuda.is_available() else 'cpu'", f"f'{{DEVICE.type}}:0' {_ON_CPU}"),
    ],
)
@pytest.mark.parametrize("through", [False, True])
def test_a_numbered_device_loads_on_the_cpu(
    device: str, becomes: str, through: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if through and device.startswith("lambda"):
        device, becomes = f"({device})", f"({becomes})"
    where, use = (f"place = {device}\n", "place") if through else ("", device)
    source = f"import torch\nrank = 0\n{where}found = torch.load(file, map_location={use})\n"
    text = convert_source(source, "a.py").text
    assert becomes in text.replace('"', "'")
    assert text.count("is_available()") == 1
    file = io.BytesIO()
    torch.save(torch.ones(2), file)
    file.seek(0)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_, **__: None)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    names = {"file": file}
    exec(text, names)  # the converted source
    assert torch.equal(names["found"], torch.ones(2))  # type: ignore[arg-type]


@pytest.mark.parametrize("device", ["'cuda', rank", "'cuda:0'", "f'cuda:{rank}'", "'cuda', index=1"])
def test_a_device_made_for_torch_load_is_the_cpu_without_an_accelerator(device: str) -> None:
    text = convert_source(f"import torch\ntorch.load(f, map_location=torch.device({device}))\n", "a.py").text
    assert text.replace('"', "'").count(f") {_ON_CPU})") == 1
    assert convert_source(f"import torch\nplace = torch.device({device})\n", "a.py").text.count(_ON_CPU) == 0


def test_a_numbered_device_of_a_tensor_stays_short() -> None:
    text = convert_source("import torch\nx = torch.ones(2, device='cuda:0')\n", "a.py").text
    assert "x = torch.ones(2, device=f'{DEVICE.type}:0')\n" in text


def test_the_index_of_the_current_device_is_a_number() -> None:
    source = "import torch\nplace = torch.device('cuda', torch.cuda.current_device())\n"
    index = "torch.accelerator.current_device_index() if torch.accelerator.is_available() else 0"
    assert f"place = torch.device(DEVICE.type, {index})\n" in convert_source(source, "a.py").text
