"""Files of MindSpore and safetensors: CRCs, every data type, and types that PyTorch lacks."""

import json
import struct
import zlib

import pytest
import torch
from safetensors.torch import load_file, save_file

from isthmus_formats.checkpoint.containers import mindspore_file, protobuf, safetensors_file
from isthmus_formats.checkpoint.containers.file_tensors import Unsupported
from isthmus_formats.checkpoint.errors import CheckpointError
from tests.helpers.checkpoints import CONFIGS, check_same, checkpoint, convert_checkpoint, write_random

TYPES = {
    "UInt16": torch.uint16,
    "UInt32": torch.uint32,
    "UInt64": torch.uint64,
    "Complex64": torch.complex64,
    "Float8E4M3FN": torch.float8_e4m3fn,
    "Int16": torch.int16,
    "BFloat16": torch.bfloat16,
}


def message(name, kind, shape, data):
    """Return a tensor as MindSpore's save_checkpoint writes it."""
    proto = b"".join(protobuf.encode_integer(1, each) for each in shape)
    proto += protobuf.encode_bytes(2, kind.encode()) + protobuf.encode_bytes(3, data)
    return protobuf.encode_bytes(1, protobuf.encode_bytes(1, name.encode()) + protobuf.encode_bytes(2, proto))


def with_crc(data):
    """Return a file as MindSpore's save_checkpoint writes it with crc_check."""
    return data + b"crc_num" + zlib.crc32(data).to_bytes(10, "big")


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("checked", [False, True])
def test_types_of_mindspore(tmp_path, kind, checked):
    tensor = torch.arange(6).reshape(2, 3).to(TYPES[kind])
    data = message("x", kind, (2, 3), tensor.view(torch.uint8).numpy().tobytes())
    (tmp_path / "x.ckpt").write_bytes(with_crc(data) if checked else data)
    found = mindspore_file.read(tmp_path / "x.ckpt")["x"]
    assert found.dtype == TYPES[kind] and found.shape == (2, 3)
    assert torch.equal(found.read().view(torch.uint8), tensor.view(torch.uint8))


@pytest.mark.parametrize("place", [0, 20, -20, -1])
def test_a_crc_that_does_not_match(tmp_path, place):
    data = bytearray(with_crc(message("x", "Float32", (8,), bytes(32))))
    data[place] ^= 1
    (tmp_path / "x.ckpt").write_bytes(data)
    with pytest.raises(CheckpointError, match="does not match its CRC; copy the file again"):
        mindspore_file.read(tmp_path / "x.ckpt")


def safetensors_crc(tensors):
    """Return the CRC that MindSpore's save_checkpoint notes in a safetensors file."""
    crc = 0
    for name in sorted(tensors):
        crc = zlib.crc32(
            tensors[name].contiguous().view(torch.uint8).numpy().tobytes(), zlib.crc32(name.encode(), crc)
        )
    return str(crc)


def test_the_crc_of_safetensors(tmp_path):
    tensors = {"b": torch.rand(3, 4), "a": torch.arange(5).to(torch.uint16)}
    path = tmp_path / "x.safetensors"
    save_file(tensors, path, {"format": "ms", "crc_num": safetensors_crc(tensors)})
    found = safetensors_file.read(path)
    assert found["a"].dtype == torch.uint16 and torch.equal(found["b"].read(), tensors["b"])
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CheckpointError, match="does not match its CRC"):
        safetensors_file.read(path)


def test_types_that_pytorch_lacks_are_left_out_or_named(tmp_path):
    source = write_random(tmp_path / "source", CONFIGS["llama"])
    for options in "", "--dp 2":
        ranks = convert_checkpoint(source, tmp_path / f"ranks{options}", "mindformers", *options.split())
        for path in ranks.glob("rank_*/*.ckpt"):
            path.write_bytes(with_crc(path.read_bytes() + message("scale", "Int4", (2,), b"12")))
        if options:
            continue
        result = checkpoint("inspect", ranks)
        assert (
            result.exit_code == 1 and "scale has the data type Int4, which is not supported" in result.stderr
        )
        assert "--ignore 'scale'" in result.stderr and result.stderr.count("\n") == 1
    check_same(
        source, convert_checkpoint(tmp_path / "ranks", tmp_path / "back", "huggingface", "--ignore", "scale")
    )
    check_same(source, convert_checkpoint(tmp_path / "ranks--dp 2", tmp_path / "joined", "huggingface"))


@pytest.mark.parametrize("kind", ["F4", "F6_E2M3", "Int4"])
def test_types_of_safetensors_that_pytorch_lacks(tmp_path, kind):
    source = write_random(tmp_path / "source", CONFIGS["llama"])
    path = source / "model.safetensors"
    tensors = load_file(path) | {"scale": torch.zeros(4, dtype=torch.uint8)}
    save_file(tensors, path, {"format": "pt", "scale": "Int4"} if kind == "Int4" else {"format": "pt"})
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header["scale"]["dtype"] = kind if kind != "Int4" else "U8"
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])
    assert isinstance(safetensors_file.read(path)["scale"], Unsupported)
    result = checkpoint("convert", source, tmp_path / "target", "--to", "dcp")
    assert result.exit_code == 1 and f"scale has the data type {kind}" in result.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["source"]
    convert_checkpoint(source, tmp_path / "target", "dcp", "--ignore", "^scale$")


@pytest.mark.parametrize("route", ["mindformers", "mindformers --names concatenated", "megatron", "dcp"])
def test_parameters_of_unsigned_types_are_kept(tmp_path, route):
    source = write_random(tmp_path / "source", CONFIGS["llama"])
    tensors = load_file(source / "model.safetensors")
    tensors = {name: each.view(torch.int16).view(torch.uint16) for name, each in tensors.items()}
    save_file(tensors, source / "model.safetensors", {"format": "pt"})
    target = convert_checkpoint(source, tmp_path / "target", *route.split())
    back = load_file(convert_checkpoint(target, tmp_path / "back", "huggingface") / "model.safetensors")
    assert all(
        torch.equal(back[name].view(torch.int16), each.view(torch.int16)) for name, each in tensors.items()
    )


def test_sparse_tensors_are_left_out_or_named(tmp_path):
    source = write_random(tmp_path / "source", CONFIGS["llama"])
    folder = tmp_path / "bin"
    folder.mkdir()
    state = load_file(source / "model.safetensors") | {"scale": torch.ones(3).to_sparse()}
    torch.save(state, folder / "pytorch_model.bin")
    options = "--config", source / "config.json"
    result = checkpoint("inspect", folder, *options)
    assert result.exit_code == 1 and "scale has the data type sparse_coo" in result.stderr
    check_same(
        source, convert_checkpoint(folder, tmp_path / "back", "huggingface", "--ignore", "scale", *options)
    )
