"""Checkpoints that DeepSpeed itself has written are read as its own zero_to_fp32 reads them."""

from importlib.util import find_spec

import pytest
import torch
from safetensors.torch import load_file

from tests.helpers.checkpoints import CONFIGS, convert_checkpoint, weights
from tests.helpers.command import run

transformers = pytest.importorskip("transformers")
if not find_spec("deepspeed"):  # not imported here: it has an effect on the process
    pytest.skip("no deepspeed", allow_module_level=True)


STAGES = ["1", "2", "3", "1-frozen", "2-frozen", "3-frozen"]


@pytest.mark.full
def test_what_deepspeed_writes_is_read(tmp_path):
    config = transformers.AutoConfig.for_model(**CONFIGS["llama"])
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(
        tmp_path / "hf"
    )
    result = run(
        "--nproc", 2, "tests/helpers/checkpoint_deepspeed.py", tmp_path, *STAGES, ISTHMUS_HOST_MEMORY="4GiB"
    )
    assert result.returncode == 0, result.stderr[-3000:]
    for stage in (each.replace("-", "") for each in STAGES):
        options = ("--config", tmp_path / "hf" / "config.json")
        found = weights(
            convert_checkpoint(tmp_path / f"zero{stage}", tmp_path / f"back{stage}", "huggingface", *options)
        )
        expected = load_file(tmp_path / f"expected{stage}.safetensors")
        if stage == "1frozen":  # zero_to_fp32 leaves frozen parameters out then; the module has them
            source = weights(tmp_path / "hf")
            expected |= {name: each.bfloat16() for name, each in source.items() if name not in expected}
        assert found.keys() == expected.keys()
        for name, tensor in found.items():
            assert torch.equal(tensor, expected[name]), (stage, name)
