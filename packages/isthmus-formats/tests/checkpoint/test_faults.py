"""Damaged, incomplete and hostile checkpoints: one clear line, the source untouched, no half target."""

import json
import os
import pickle
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING, Metadata

from isthmus_common.files import lock_file
from isthmus_formats.checkpoint.containers import torch_file
from isthmus_formats.checkpoint.containers.file_tensors import Stored
from isthmus_formats.checkpoint.errors import CheckpointError
from isthmus_formats.checkpoint.formats.dcp import read_metadata
from tests.helpers.checkpoints import (
    CONFIGS,
    check_same,
    checkpoint,
    convert_checkpoint,
    weights,
    write_random,
)
from tests.helpers.checkpoints import check_refused as conversion_refused
from tools.repository import ROOT


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    source = write_random(folder / "huggingface", CONFIGS["llama"])
    for name in (
        "megatron --tp 2",
        "mindformers --tp 2",
        "megatron-dist",
        "dcp",
        "meta --tp 2",
        "huggingface-bin",
    ):
        convert_checkpoint(source, folder / name.split()[0], *name.split())
    return folder


@pytest.fixture
def copied(sources, tmp_path):
    def copy(name):
        return shutil.copytree(sources / name, tmp_path / name)

    return copy


def refused(source, *words, options=()):
    """Check that a conversion is refused with these words."""
    said = conversion_refused(source, "huggingface", *options)
    assert all(word in said for word in words), said


def largest(folder):
    return max((path for path in folder.rglob("*") if path.suffix), key=lambda path: path.stat().st_size)


NAMES = ["huggingface", "megatron", "mindformers", "megatron-dist", "dcp", "meta", "huggingface-bin"]


@pytest.mark.parametrize("name", NAMES)
def test_truncated(copied, name):
    path = largest(copied(name))
    os.truncate(path, path.stat().st_size // 2)
    refused(_root(path, name), path.name)


def _root(path, name):
    return next(parent for parent in path.parents if parent.name == name)


@pytest.mark.parametrize("name", NAMES[1:])
def test_a_flipped_bit(copied, name):
    copied("huggingface")
    folder = copied(name)
    norm = weights(folder.parent / "huggingface")["model.norm.weight"].view(torch.uint8).numpy().tobytes()
    for path in (path for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes()
        path.write_bytes(data.replace(norm, norm[:-1] + bytes([norm[-1] ^ 1])))
    refused(folder, "hash", "norm")
    checked = checkpoint("inspect", folder, "--check")
    assert checked.exit_code == 1 and "hash" in checked.stderr


@pytest.mark.parametrize("name", ["megatron", "mindformers", "megatron-dist", "dcp", "meta"])
def test_a_missing_file(copied, name):
    folder = copied(name)
    paths = [path for path in folder.rglob("*") if path.suffix in {".pt", ".ckpt", ".distcp", ".pth"}]
    paths = [path for path in paths if path.parent.name != "strategy" and path.name != "common.pt"]
    sorted(paths)[0].unlink()
    refused(folder)


def test_a_missing_shard(copied, tmp_path):
    shards = tmp_path / "shards"
    checkpoint("shard-size", copied("huggingface"), shards, "--size", "20KB")
    first = min(shards.glob("*.safetensors"))
    first.unlink()
    refused(shards, first.name, "index")


def test_a_rank_twice(copied):
    folder = copied("megatron")
    shutil.copytree(folder / "release" / "mp_rank_00", folder / "release" / "mp_rank_00_000")
    refused(folder, "stale")
    folder = copied("mindformers")
    shutil.copy(folder / "rank_0" / "checkpoint_0.ckpt", folder / "rank_0" / "older.ckpt")
    refused(folder, "stale", "older.ckpt")
    folder = copied("meta")
    shutil.copy(folder / "consolidated.00.pth", folder / "consolidated.0.pth")
    refused(folder, "same rank")


def _changed(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_wrong_names_and_shapes(copied):
    folder = copied("huggingface")
    _changed(folder, lambda tensors: tensors.update({"model.norm.weight": torch.zeros(31)}))
    refused(folder, "model.norm.weight", "(31,)", "(32,)")
    _changed(folder, lambda tensors: tensors.pop("model.norm.weight"))
    refused(folder, "lacks model.norm.weight")
    _changed(
        folder,
        lambda tensors: tensors.update({"model.norm.weight": torch.zeros(32), "lora_B": torch.zeros(2)}),
    )
    refused(folder, "lora_B", "--ignore")
    target = folder.parent / "ignored"
    convert_checkpoint(folder, target, "megatron", "--ignore", "lora_B")


def changed_config(name="llama", **changes):
    return json.dumps(CONFIGS[name] | changes).encode()


@pytest.mark.parametrize(
    "config, said",
    [
        (b"{", "not JSON"),
        (b"[]", "expected an object"),
        (b"\xff\xfe{", "not JSON"),
        (b'{"model_type": "t5"}', "unknown architecture 't5'"),
        (b'{"model_type": ["llama"]}', "unknown architecture"),
        (b'{"model_type": "llama"}', "lacks 'vocab_size'"),
        (
            b'{"model_type": "gpt2", "n_layer": 1, "n_embd": null, "vocab_size": 0}',
            "not a size: n_embd null, vocab_size 0",
        ),
        (changed_config(num_nextn_predict_layers="one"), 'num_nextn_predict_layers "one"'),
        (changed_config(num_nextn_predict_layers=[1]), "num_nextn_predict_layers [1]"),
        (changed_config("deepseek_v3", num_key_value_heads="x"), 'num_key_value_heads "x"'),
        (changed_config("mistral", head_dim={}, num_attention_heads=None), "num_attention_heads null"),
        (changed_config("qwen3_moe", mlp_only_layers=3), "not iterable"),
    ],
)
def test_a_wrong_configuration(copied, config, said):
    folder = copied("huggingface")
    (folder / "config.json").write_bytes(config)
    refused(folder, "config.json", said)


@pytest.mark.parametrize(
    "name, changes, kind",
    [
        ("mistral", {"sliding_window": "9"}, "megatron"),
        ("mistral", {"sliding_window": 9, "layer_types": 4}, "megatron-dist"),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": "x"}, "megatron"),
        ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}, "hidden_act": {"a": 1}}, "megatron"),
        ("llama", {"rope_scaling": 3}, "internevo --names llama"),
    ],
)
def test_a_configuration_that_the_target_cannot_express(tmp_path, name, changes, kind):
    source = write_random(tmp_path / "source", CONFIGS[name] | changes)
    assert "config" in conversion_refused(source, *kind.split())


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b"[1]",
        b"3",
        b"{}",
        b'{"config": 3}',
        b'{"config": {}, "format": "huggingface"}',
        b'{"config": {}, "format": "huggingface", "layout": {"x": 1}, "tensors": []}',
        b'{"config": {}, "format": "huggingface", "layout": {}, "tensors": [[1, 2]]}',
        b'{"config": {}, "format": "huggingface", "layout": [], "tensors": 3}',
    ],
)
def test_a_manifest_that_is_damaged(copied, content):
    folder = copied("huggingface")
    (folder / "isthmus-manifest.json").write_bytes(content)
    refused(folder, "isthmus-manifest.json", "damaged", "delete it")


@pytest.mark.parametrize(
    "name, path, content",
    [
        ("huggingface", "model.safetensors.index.json", b'{"weight_map": {"model.norm.weight": 3}}'),
        ("huggingface", "model.safetensors.index.json", b'{"weight_map": {"a": [], "b": "c"}}'),
        ("megatron", "latest_checkpointed_iteration.txt", "²".encode()),
        ("dcp", ".metadata", pickle.dumps(Metadata({}, {}, {1: 2}))),
        ("dcp", ".metadata", pickle.dumps(Metadata(3, {}, {}))),
    ],
)
def test_structures_that_are_damaged(copied, name, path, content):
    folder = copied(name)
    (folder / path).write_bytes(content)
    refused(folder, "damaged")


def test_files_without_an_embedding(copied):
    folder = copied("meta")
    for path in folder.glob("*.pth"):
        torch.save({"norm.weight": torch.zeros(())}, path)
    refused(folder, "damaged", "tok_embeddings.weight")


@pytest.mark.parametrize(
    "header", [b"", b"\0" * 7, b"\xff" * 16, b"\2\0\0\0\0\0\0\0[]", b'\4\0\0\0\0\0\0\0{"a"']
)
def test_a_header_that_is_none(copied, header):
    folder = copied("huggingface")
    (folder / "model.safetensors").write_bytes(header)
    refused(folder, "model.safetensors")


class Hostile:
    """Executes a command when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("zipped", [True, False])
def test_code_in_a_pickle_is_not_executed(copied, tmp_path, zipped):
    folder = copied("huggingface-bin")
    content = {
        **torch.load(folder / "pytorch_model.bin", weights_only=True),
        "extra": Hostile(tmp_path / "executed"),
    }
    torch.save(content, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    refused(folder, "execute code", "mkdir", "--allow-pickle")
    assert not (tmp_path / "executed").exists()
    (folder / "isthmus-manifest.json").unlink()
    result = checkpoint("convert", folder, tmp_path / "target", "--to", "huggingface", "--allow-pickle")
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "executed").exists()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_bare_pickle_is_refused(copied, protocol):
    folder = copied("huggingface-bin")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": [1, 2]}, protocol))
    refused(folder, "pytorch_model.bin")


def test_code_in_dcp_metadata_is_not_executed(copied, tmp_path):
    folder = copied("dcp")
    (folder / ".metadata").write_bytes(pickle.dumps(Hostile(tmp_path / "executed")))
    refused(folder, "execute code", "posix.mkdir")
    assert not (tmp_path / "executed").exists()


class Attribute:
    """Pickled as getattr of something, as members of enumerations are by Python 3.11.0 to 3.11.3."""

    def __init__(self, kind, name):
        self.arguments = kind, name

    def __reduce__(self):
        return getattr, self.arguments


def test_of_getattr_in_dcp_metadata_only_members_of_enumerations_are_read(tmp_path):
    path = tmp_path / ".metadata"
    member = _MEM_FORMAT_ENCODING.TORCH_PRESERVE_FORMAT
    path.write_bytes(pickle.dumps(Metadata({}, {"x": Attribute(_MEM_FORMAT_ENCODING, member.name)}, {})))
    assert read_metadata(path).planner_data == {"x": member}
    for kind, name in [(torch.Size, "numel"), (_MEM_FORMAT_ENCODING, "__subclasses__")]:
        path.write_bytes(pickle.dumps(Attribute(kind, name)))
        with pytest.raises(CheckpointError, match=re.escape(str(path))):
            read_metadata(path)


def test_of_getattr_in_files_of_torch_save_only_members_of_enumerations_are_read(tmp_path):
    path = tmp_path / "model.pt"
    torch.save({"weight": torch.ones(2), "x": Attribute(signal.Signals, "SIGTERM")}, path)
    tensors, content = torch_file.read(path)
    assert list(tensors) == ["weight"] and isinstance(content["x"], torch_file.Inert)
    torch.save({"x": Attribute(OrderedDict, "fromkeys")}, path)
    with pytest.raises(CheckpointError, match=re.escape(str(path))):
        torch_file.read(path)


def test_files_outside_the_folder_are_not_read(copied):
    folder = copied("huggingface")
    index = {"weight_map": {"model.norm.weight": "../other.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(folder, "outside")


def test_compressed_entries_are_refused(copied):
    folder = copied("huggingface-bin")
    path = folder / "pytorch_model.bin"
    torch.save({"weight": torch.zeros(99)}, path)
    with zipfile.ZipFile(path) as old:
        entries = {each: old.read(each) for each in old.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name, data in entries.items():
            new.writestr(name, data)
    refused(folder, "compressed")


def test_impossible_targets(copied, tmp_path):
    folder = copied("huggingface")
    for options, said, status in [
        ("--to megatron --tp 3", "cannot be split over --tp 3", 1),
        ("--to megatron --tp 8", "4 key-value heads cannot be split over --tp 8; give a divisor of 4", 1),
        ("--to mindformers --tp 4", "90 rows, columns or experts cannot be split so; give sizes", 1),
        ("--to megatron --pp 3", "--stages", 1),
        ("--to megatron --ep 2", "the model has no experts; leave it out", 1),
        ("--to internevo --names llama --pp 2 --stages 4,0", "InternEvo needs a layer in each stage", 1),
        ("--to huggingface --tp 2", "cannot be split so", 2),
        ("--to huggingface --pad-vocabulary 8", "huggingface has no padded vocabulary; leave it out", 2),
        ("--to paddle", "unknown format 'paddle'", 2),
        ("--to megatron --names hf", "no such names", 2),
        ("--to meta --dtype int8", "expected float32", 2),
        ("--to internevo --stages 1,x", "expected the layers", 2),
        ("--to meta --ignore (", "--ignore (: not a regular expression: missing )", 2),
    ]:
        result = checkpoint("convert", folder, tmp_path / "target", *options.split())
        assert result.exit_code == status and said in result.stderr, (
            options,
            result.output,
            result.exception,
        )
        assert sorted(path.name for path in tmp_path.iterdir()) == ["huggingface"], options
    result = checkpoint("convert", folder, folder / "target", "--to", "megatron")
    assert result.exit_code == 1 and "is inside the source" in result.stderr
    (tmp_path / "target").mkdir()
    result = checkpoint("convert", folder, tmp_path / "target", "--to", "megatron")
    assert result.exit_code == 1 and "already exists" in result.stderr


@pytest.mark.parametrize("umask", [0, 0o077])
def test_modes_do_not_depend_on_the_umask(copied, tmp_path, umask):
    before = os.umask(umask)
    try:
        for kind in ("megatron --tp 2", "mindformers --tp 2", "dcp"):
            convert_checkpoint(copied("huggingface"), tmp_path / "target", *kind.split())
            for path in (tmp_path / "target", *(tmp_path / "target").rglob("*")):
                assert path.stat().st_mode & 0o777 == (0o750 if path.is_dir() else 0o640), path
            shutil.rmtree(tmp_path / "target")
            shutil.rmtree(tmp_path / "huggingface")
    finally:
        os.umask(before)


KILLED = """
import os, signal, sys
from isthmus_formats.checkpoint.containers.file_tensors import Stored
from isthmus_common.shell import main
write, left = Stored.write, int(sys.argv.pop(1))
def counted(self, tensor):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return write(self, tensor)
Stored.write = counted
main()
"""


@pytest.mark.parametrize("after", [0, 7, 20])
@pytest.mark.sampled(1)
def test_a_killed_conversion_is_resumed(copied, tmp_path, after):
    source, target = copied("huggingface"), tmp_path / "target"
    before = {path: path.read_bytes() for path in source.iterdir()}
    command = ["checkpoint", "convert", source, target, "--to", "megatron"]
    killed = subprocess.run([sys.executable, "-c", KILLED, str(after), *command], check=False, cwd=ROOT)
    assert killed.returncode == -signal.SIGKILL
    assert not target.exists()
    result = checkpoint("convert", source, target, "--to", "megatron")
    assert result.exit_code == 0, result.stderr
    assert "resuming" in result.stderr
    assert before == {path: path.read_bytes() for path in source.iterdir()}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["huggingface", "target"]
    check_same(source, convert_checkpoint(target, tmp_path / "back", "huggingface"))


def test_a_full_disk(copied, tmp_path, monkeypatch):
    source, target = copied("huggingface"), tmp_path / "target"
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=999))
    result = checkpoint("convert", source, target, "--to", "megatron")
    assert result.exit_code == 1 and "the disk has 999 free" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["huggingface"]
    monkeypatch.undo()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limit[1]))
        result = checkpoint("convert", source, target, "--to", "huggingface")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert result.exit_code == 1 and "File too large" in result.stderr and "target" in result.stderr
    assert not target.exists()
    convert_checkpoint(source, target, "huggingface")


def test_an_interrupted_conversion_is_resumed(copied, tmp_path, monkeypatch):
    source, target = copied("huggingface"), tmp_path / "target"
    write, calls = Stored.write, iter(range(99))

    def interrupted(self, tensor):
        if next(calls) == 9:
            raise KeyboardInterrupt
        return write(self, tensor)

    with monkeypatch.context() as patch:
        patch.setattr(Stored, "write", interrupted)
        result = checkpoint("convert", source, target, "--to", "megatron", "--workers", 1)
    assert (result.exit_code, result.stderr) == (
        130,
        "isthmus: interrupted; repeat the command to continue\n",
    )
    assert not target.exists()
    assert "resuming: " in checkpoint("convert", source, target, "--to", "megatron").stderr
    check_same(source, convert_checkpoint(target, tmp_path / "back", "huggingface"))


def test_two_conversions_do_not_write_one_target(copied, tmp_path):
    source, partial = copied("huggingface"), tmp_path / ".target.isthmus-partial"
    partial.mkdir()
    with lock_file(partial):
        refused(source, "another conversion is writing it")


def test_symbolic_links(copied, tmp_path):
    """Files of Hugging Face's cache are links; a target is never written through one."""
    source, links = copied("huggingface"), tmp_path / "links"
    links.mkdir()
    for path in source.iterdir():
        (links / path.name).symlink_to(path)
    (tmp_path / "link").symlink_to(links)
    check_same(source, convert_checkpoint(tmp_path / "link", tmp_path / "back", "huggingface"))
    (tmp_path / "dangling").symlink_to("nothing")
    result = checkpoint("convert", source, tmp_path / "dangling", "--to", "megatron")
    assert result.exit_code == 1 and "dangling: already exists" in result.stderr
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("path", ["/etc/passwd", "../huggingface-bin/pytorch_model.bin", ".."])
def test_distributed_checkpoints_name_no_files_outside(copied, path):
    copied("huggingface-bin")
    folder = copied("dcp")
    content = pickle.loads((folder / ".metadata").read_bytes())
    next(iter(content.storage_data.values())).relative_path = path
    (folder / ".metadata").write_bytes(pickle.dumps(content))
    refused(folder, ".metadata: names the file", "outside its folder")


@pytest.mark.parametrize("archive", ["..", "/tmp/isthmus-slip"])
def test_entries_of_archives_are_not_extracted(copied, tmp_path, archive):
    folder = copied("huggingface-bin")
    path = folder / "pytorch_model.bin"
    torch.save(torch.load(path, weights_only=True), path)
    before = sorted(tmp_path.rglob("*"))
    with zipfile.ZipFile(path) as old:
        entries = {each.replace("pytorch_model", archive, 1): old.read(each) for each in old.namelist()}
    with zipfile.ZipFile(path, "w") as new:
        for name, data in entries.items():
            new.writestr(name, data)
    result = checkpoint("inspect", folder, "--check")
    assert result.exit_code in (0, 1) and isinstance(result.exception, SystemExit | None), result.exception
    assert sorted(tmp_path.rglob("*")) == before and not Path("/tmp/isthmus-slip").exists()


@pytest.mark.parametrize("name", NAMES)
def test_flipped_bits_without_a_manifest(copied, name):
    """The formats have no checksums of their own: a clear message, or other numbers."""
    choose = random.Random(0)
    folder = copied(name)
    (folder / "isthmus-manifest.json").unlink(missing_ok=True)
    path = largest(folder)
    files = [path, folder / ".metadata"] if name in ("dcp", "megatron-dist") else [path]
    for file in files:
        content = file.read_bytes()
        for reach in (64, 2048, len(content)) * 2:
            place = choose.choice([choose.randrange(reach), len(content) - 1 - choose.randrange(reach)])
            flipped = content[place] ^ 1 << choose.randrange(8)
            file.write_bytes(content[:place] + bytes([flipped]) + content[place + 1 :])
            result = checkpoint("inspect", folder, "--check")
            assert isinstance(result.exception, SystemExit | None), (file, place, result.exception)
            assert result.stderr.count("\n") == result.exit_code, result.stderr
        file.write_bytes(content)


def test_another_conversion_is_not_resumed(copied, tmp_path):
    source, partial = copied("huggingface"), tmp_path / ".target.isthmus-partial"
    partial.mkdir()
    (partial / ".journal").write_text('{"job": {}, "tensors": []}\n')
    (partial / "stale").write_text("")
    target = convert_checkpoint(source, tmp_path / "target", "megatron")
    assert not (target / "stale").exists() and not partial.exists()
