"""MindSpore's strategy files: written, read back, merged, and used to put slices together."""

import json

import pytest

from isthmus_formats.checkpoint import strategy
from isthmus_formats.checkpoint.errors import CheckpointError
from isthmus_formats.checkpoint.strategy import Item, Strategy
from tests.helpers.checkpoints import CONFIGS, check_same, checkpoint, convert_checkpoint, write_random

ITEMS = {
    "model.layers.0.attention.wq.weight": Item((2, 2), ((0,), ()), (), (), 0, 2, 2),
    "model.norm_out.weight": Item((4,), ((),)),
    "several": Item((2, 2, 2), ((2, 0), (1,)), (8, 4), (0, 1), 3),
}


@pytest.mark.parametrize("suffix", [".ckpt", ".json"])
def test_what_is_written_is_read(tmp_path, suffix):
    written = Strategy(1, ITEMS, {"MatMul-op0": (1, ((1, 2), (2, 1)))})
    strategy.write(tmp_path / f"strategy{suffix}", written)
    assert strategy.read(tmp_path / f"strategy{suffix}") == written
    assert (tmp_path / f"strategy{suffix}").stat().st_mode & 0o777 == 0o640


def test_positions_count_axes_from_the_right():
    both = Item((2, 4), ((0,), (1,)))
    assert [both.position(rank) for rank in (0, 1, 4, 7)] == [
        [(0, 4), (0, 2)],
        [(1, 4), (0, 2)],
        [(0, 4), (1, 2)],
        [(3, 4), (1, 2)],
    ]
    assert [Item((2, 2), ((0,), ()), step=2, size=2).position(rank)[0] for rank in range(4)] == [
        *((0, 4), (2, 4)),
        *((1, 4), (3, 4)),
    ]


def test_stages_are_merged_under_their_numbers(tmp_path):
    for rank, stage in ((0, 0), (1, 0), (2, 1), (10, 2)):
        each = Strategy(stage, {f"layer{stage}.weight": Item((2,), ((0,),))}, {"op": (stage, ())})
        strategy.write(tmp_path / f"ckpt_strategy_rank_{rank}.ckpt", each)
    result = checkpoint("strategy", "merge", tmp_path, tmp_path / "merged.json", "--json")
    assert result.exit_code == 0 and json.loads(result.stdout)["parameters"] == 3
    assert list(strategy.read(tmp_path / "merged.json").items) == [f"{i}-layer{i}.weight" for i in range(3)]
    again = checkpoint("strategy", "merge", tmp_path, tmp_path / "merged.json")
    assert again.exit_code == 1 and "merged.json: already exists; delete it" in again.stderr
    (tmp_path / "ckpt_strategy_rank_2.ckpt").unlink()
    (tmp_path / "merged.json").unlink()
    with pytest.raises(CheckpointError, match="stage 1"):
        strategy.merge(sorted(tmp_path.glob("*.ckpt")))


@pytest.mark.parametrize(
    "name, content, said",
    [
        ("a.ckpt", b"", "empty"),
        ("a.ckpt", b"\x1a\xff\x01", "damaged"),
        ("a.json", b"{", "damaged"),
        ("a.json", b'{"parallel_layout_item": {"w": {"dev_matrix": [2], "tensor_map": [3]}}}', "axis"),
        ("a.json", b'{"parallel_layout_item": {"w": {"tensor_map": [3]}}}', "dev_matrix"),
    ],
)
def test_damaged_files_are_refused(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    result = checkpoint("strategy", "show", tmp_path / name)
    assert result.exit_code == 1 and result.stderr.count("\n") == 1
    assert said in result.stderr and name in result.stderr


def test_merged_strategies_put_slices_together(tmp_path):
    source = write_random(tmp_path / "source", CONFIGS["llama"])
    ranks = convert_checkpoint(source, tmp_path / "ranks", "mindformers", "--tp", 2, "--pp", 2, "--dp", 2)
    merged = tmp_path / "merged.ckpt"
    assert checkpoint("strategy", "merge", ranks / "strategy", merged).exit_code == 0
    shown = checkpoint("strategy", "show", merged)
    assert "0-model.layers.0.attention.wq.weight\t2x2\t[0, -1]\t2\n" in shown.stdout
    assert checkpoint("strategy", "convert", merged, tmp_path / "merged.json").exit_code == 0
    (ranks / "isthmus-manifest.json").unlink()
    for path in (ranks / "strategy").iterdir():
        path.unlink()
    refused = checkpoint("convert", ranks, tmp_path / "back", "--to", "huggingface")
    assert refused.exit_code == 1 and "--strategy" in refused.stderr
    back = convert_checkpoint(ranks, tmp_path / "back", "huggingface", "--strategy", tmp_path / "merged.json")
    check_same(source, back)
