"""Load a folder of checkpoints with the real MindSpore; run by an interpreter that has it.

    python tests/helpers/checkpoint_mindspore.py FOLDER

FOLDER has ``whole`` and ``ranks`` of the format mindformers; written are ``saved`` (by save_checkpoint), ``merged``
(by merge_pipeline_strategys), ``split`` and ``joined`` (by transform_checkpoints).
"""

import sys
from pathlib import Path

import mindspore as ms


def main() -> None:
    folder = Path(sys.argv[1])
    parameters = ms.load_checkpoint(str(folder / "whole/rank_0/checkpoint_0.ckpt"))
    (folder / "saved/rank_0").mkdir(parents=True)
    saved = [{"name": name, "data": parameter} for name, parameter in parameters.items()]
    ms.save_checkpoint(saved, str(folder / "saved/rank_0/saved.ckpt"))
    merged = str(folder / "merged/strategy.ckpt")
    (folder / "merged").mkdir()
    ms.merge_pipeline_strategys(str(folder / "ranks/strategy"), merged)
    ms.transform_checkpoints(str(folder / "whole"), str(folder / "split"), "checkpoint_", None, merged)
    ms.transform_checkpoints(str(folder / "ranks"), str(folder / "joined"), "checkpoint_", merged, None)


main()
