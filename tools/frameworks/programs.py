"""Frameworks and public programs that run under ``isthmus run``: location, command line, data."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tools.frameworks import data
from tools.repository import ROOT


class Program(NamedTuple):
    """A program of a public repository or of an installed package.

    Attributes:
        repository: GitHub repository; "" for a program of the package alone.
        revision: commit.
        command: its command line, as after ``isthmus run``.
        package: package of packages.txt that the row is about; "" for a program that is its own.
        folder: folder to start in, within the repository.
        parts: files and folders of the repository that it needs; empty for all.
        prepare: called with the repository's folder to create data there.
        steps: optimizer steps compared with the CPU; 0 for all, None if it is not compared.
        ends: whether it ends by itself; else it runs for ``steps`` only.
        settings: environment variables.
        reason: why it fails, or differs from the CPU.
    """

    repository: str
    revision: str
    command: str
    package: str = ""
    folder: str = "."
    parts: tuple[str, ...] = ()
    prepare: Callable[[Path], object] | None = None
    steps: int | None = 0
    ends: bool = True
    settings: Mapping[str, str] = {}
    reason: str = ""


def name(program: Program) -> str:
    """Return the unique name of a program: its repository or package, and its script."""
    script = next(word for word in program.command.split() if word not in ("-m", "--nproc", "2"))
    return f"{program.package or program.repository}: {script}"


def _llama(root: Path) -> None:
    for index in range(2):
        data.tokens(root / "data/tok512" / f"{index}.bin")


def _trl(kind: str, row: Callable[[list[str]], object], options: str = "") -> Program:
    def prepare(root: Path) -> None:
        data.language_model(root / "model")
        data.json_lines(root / "data/train.jsonl", row)

    command = (
        f"-m trl.scripts.{kind} --model_name_or_path model --dataset_name data --output_dir out --max_steps 5 "
        f"--per_device_train_batch_size 2 --logging_steps 1 --report_to none --dtype float32 {options}"
    )
    return Program("", TRL, command.strip(), "trl", prepare=prepare, steps=None)


def _torchtune(root: Path) -> None:
    data.torchtune_model(root / "model/model.pt")
    data.json_lines(root / "made.jsonl", data.instructions)
    (root / "made.yaml").write_text(TORCHTUNE)


def _language_model(root: Path) -> None:
    data.language_model(root / "model")
    data.json_lines(root / "data/train.jsonl", data.instructions)


def _sentence_pairs(root: Path) -> None:
    data.sentence_encoder(root / "model")
    for part in ("train", "validation", "test"):
        data.json_lines(root / f"sentence-transformers/stsb/{part}.jsonl", data.scored_pairs, 32)


def _diffusion(root: Path) -> None:
    data.image_folders(root / "made")
    blocks = {"down_block_types": ["DownBlock2D"] * 2, "up_block_types": ["UpBlock2D"] * 2}
    config = {
        "_class_name": "UNet2DModel",
        "sample_size": 16,
        "block_out_channels": [32, 32],
        "layers_per_block": 1,
    }
    (root / "model").mkdir()
    (root / "model/config.json").write_text(json.dumps({**config, **blocks}))


def _text_to_image(root: Path) -> None:
    data.text_to_image(root / "examples/text_to_image/model")
    data.captions(root / "examples/text_to_image/made/train")


# The recipe's own configuration of Llama 2, with a smaller model and one data set.
TORCHTUNE = """
output_dir: out
model: {_component_: torchtune.models.llama2.llama2, vocab_size: 2000, num_layers: 2, num_heads: 4, num_kv_heads: 4,
  embed_dim: 64, max_seq_len: 256, intermediate_dim: 256}
tokenizer: {_component_: torchtune.models.llama2.llama2_tokenizer, path: tests/assets/m.model, max_seq_len: 128}
dataset: {_component_: torchtune.datasets.alpaca_dataset, source: json, data_files: made.jsonl, split: train}
seed: 1
shuffle: true
checkpointer: {_component_: torchtune.training.FullModelTorchTuneCheckpointer, checkpoint_dir: model,
  checkpoint_files: [model.pt], recipe_checkpoint: null, output_dir: out, model_type: LLAMA2}
resume_from_checkpoint: false
batch_size: 2
epochs: 1
max_steps_per_epoch: 5
gradient_accumulation_steps: 1
optimizer: {_component_: torch.optim.AdamW, lr: 1.0e-3}
optimizer_in_bwd: false
loss: {_component_: torchtune.modules.loss.CEWithChunkedOutputLoss}
clip_grad_norm: null
compile: false
device: cuda
enable_activation_checkpointing: true
enable_activation_offloading: true
dtype: fp32
metric_logger: {_component_: torchtune.training.metric_logging.StdoutLogger}
log_every_n_steps: 1
log_peak_memory_stats: true
"""
LIGHTNING, TRL = "7f0c343", "1.16.0"
TEXT_TO_IMAGE = (
    "train_text_to_image.py --pretrained_model_name_or_path model --train_data_dir made/train --resolution 32 "
    "--train_batch_size 4 --max_train_steps 4 --seed 0 --output_dir out --dataloader_num_workers 0"
)
FABRIC_TESTS = (
    "accelerators plugins/precision/test_amp.py plugins/precision/test_amp_integration.py "
    "plugins/precision/test_double_integration.py plugins/precision/test_all.py strategies/test_single_device.py "
    "test_fabric.py test_wrappers.py utilities/test_apply_func.py utilities/test_device_dtype_mixin.py "
    "utilities/test_device_parser.py utilities/test_init.py utilities/test_throughput.py"
).split()
TRAINER_TESTS = (
    "accelerators/test_cpu.py accelerators/test_gpu.py plugins/precision/test_amp.py "
    "plugins/precision/test_amp_integration.py plugins/precision/test_double.py models/test_gpu.py "
    "trainer/flags/test_overfit_batches.py callbacks/test_device_stats_monitor.py utilities/test_memory.py"
).split()

FRAMEWORKS = (
    Program(
        "Lightning-AI/pytorch-lightning",
        LIGHTNING,
        f"-m pytest -q -p no:cacheprovider {' '.join(FABRIC_TESTS)}",
        "tests of Lightning Fabric",
        folder="tests/tests_fabric",
        parts=("src/lightning", "src/version.info", "src/lightning_fabric", "tests", "pyproject.toml"),
        settings={"PYTHONPATH": "../../src:.."},
        steps=None,
    ),
    Program(
        "Lightning-AI/pytorch-lightning",
        LIGHTNING,
        f"-m pytest -q -p no:cacheprovider {' '.join(TRAINER_TESTS)}",
        "tests of Lightning Trainer",
        reason="test_get_nvidia_gpu_stats starts nvidia-smi, a program of NVIDIA's driver",
        folder="tests/tests_pytorch",
        parts=("src/lightning", "src/version.info", "src/lightning_fabric", "tests", "pyproject.toml"),
        settings={"PYTHONPATH": "../../src:.."},
        steps=None,
    ),
    Program(
        "Lightning-AI/pytorch-lightning",
        LIGHTNING,
        "examples/pytorch/bug_report/bug_report_model.py",
        "lightning",
        parts=("examples/pytorch/bug_report",),
        steps=None,
    ),
    Program(
        "pytorch/torchtune",
        "bd2a0fc",
        "tune run full_finetune_single_device --config made.yaml",
        "torchtune 0.6.1",
        parts=("tests/assets/m.model",),
        prepare=_torchtune,
        settings={"PYTHONPATH": str(ROOT / "build/frameworks/torchtune")},
        steps=None,
    ),
    Program(
        "unslothai/unsloth",
        "015bdef",
        "unsloth-cli.py --model_name model --dataset data --max_seq_length 32 --max_steps 2 "
        "--per_device_train_batch_size 1 --gradient_accumulation_steps 1 --warmup_steps 1 --logging_steps 1 --r 4 "
        "--optim adamw_torch --report_to none",
        "unsloth",
        parts=("unsloth-cli.py",),
        prepare=_language_model,
        steps=None,
    ),
    Program(
        "",
        "8.4.190",
        "yolo detect train data=made/data.yaml model=yolov8n.yaml epochs=2 imgsz=64 batch=4 device=0 workers=0 "
        "project=out",
        "ultralytics",
        prepare=lambda root: data.boxes(root / "made"),
        settings={"YOLO_OFFLINE": "true"},
        steps=None,
    ),
    _trl("sft", data.messages),
    _trl("dpo", data.preferences),
    _trl(
        "grpo",
        data.problems,
        "--reward_funcs think_format_reward --num_generations 2 --max_completion_length 16",
    ),
    Program(
        "huggingface/diffusers",
        "58eb52c",
        "train_unconditional.py --train_data_dir made/train --model_config_name_or_path model --resolution 16 "
        "--train_batch_size 4 --num_epochs 2 --ddpm_num_steps 10 --ddpm_num_inference_steps 2 --output_dir out "
        "--logger tensorboard --dataloader_num_workers 0 --mixed_precision fp16",
        "diffusers",
        folder="examples/unconditional_image_generation",
        parts=("examples/unconditional_image_generation",),
        prepare=lambda root: _diffusion(root / "examples/unconditional_image_generation"),
        steps=None,
    ),
    Program(
        "huggingface/diffusers",
        "58eb52c",
        f"{TEXT_TO_IMAGE} --enable_xformers_memory_efficient_attention --mixed_precision fp16",
        "xformers",
        folder="examples/text_to_image",
        parts=("examples/text_to_image",),
        prepare=_text_to_image,
        steps=None,
    ),
    Program(
        "facebookresearch/xformers",
        "ca6d2aa",
        "-m pytest -q -p no:cacheprovider -c /dev/null --rootdir . --confcutdir . tests/test_rmsnorm.py "
        "tests/test_indexing.py tests/test_unbind.py",
        "tests of xformers",
        parts=("tests",),
        steps=None,
    ),
    Program("", "1.15.0", "-m accelerate.test_utils.scripts.test_script", "accelerate 1.15.0", steps=None),
    Program(
        "huggingface/pytorch-image-models",
        "aa4b585",
        "train.py --data-dir made --model test_resnet --num-classes 2 --img-size 64 --batch-size 4 --epochs 2 "
        "--workers 0 --amp --output out --log-interval 1",
        "timm",
        parts=("train.py",),
        prepare=lambda root: data.image_folders(root / "made"),
        steps=None,
    ),
    Program(
        "UKPLab/sentence-transformers",
        "85ec645",
        "matryoshka_sts.py model",
        "sentence-transformers",
        folder="examples/sentence_transformer/training/matryoshka",
        parts=("examples/sentence_transformer/training/matryoshka",),
        prepare=lambda root: _sentence_pairs(root / "examples/sentence_transformer/training/matryoshka"),
        steps=None,
    ),
    Program(
        "huggingface/peft",
        "5d602fd",
        "olora_finetuning.py --base_model model --data_path data --lora_r 4 --eval_step 1 --cutoff_len 64 "
        "--dtype float32",
        "peft",
        folder="examples/olora_finetuning",
        parts=("examples/olora_finetuning",),
        prepare=lambda root: _language_model(root / "examples/olora_finetuning"),
        steps=None,
    ),
    Program(
        "bitsandbytes-foundation/bitsandbytes",
        "95f9af3",
        "-m pytest -q -p no:cacheprovider --confcutdir . tests/test_linear4bit.py "
        "-k 'cuda and nf4 and bfloat16 and not compile'",
        "bitsandbytes",
        parts=("tests", "pyproject.toml"),
        steps=None,
    ),
)

PROGRAMS = (
    Program(
        "huggingface/diffusers",
        "58eb52c",
        TEXT_TO_IMAGE,
        reason="two losses are equal, the third differs by one unit in the last place; cause unknown",
        folder="examples/text_to_image",
        parts=("examples/text_to_image",),
        prepare=_text_to_image,
    ),
    Program("karpathy/makemore", "988aa59", "makemore.py --device cuda --max-steps 20 --num-workers 0"),
    Program("karpathy/ng-video-lecture", "5220142", "bigram.py", steps=20, ends=False),
    Program(
        "karpathy/llama2.c",
        "350e04f",
        "train.py --vocab_source=custom --vocab_size=512 --device=cuda --dtype=float32 --compile=False --dim=64 "
        "--n_layers=2 --n_heads=4 --n_kv_heads=4 --max_seq_len=64 --batch_size=8 --max_iters=8 --eval_iters=2 "
        "--gradient_accumulation_steps=1",
        prepare=_llama,
    ),
    Program(
        "tkipf/pygcn",
        "1600b5b",
        "train.py --epochs 10",
        folder="pygcn",
        prepare=lambda root: data.citations(root / "data/cora"),
        settings={"PYTHONPATH": ".."},
    ),
    Program(
        "Diego999/pyGAT",
        "3664f2d",
        "train.py --epochs 4",
        prepare=lambda root: data.citations(root / "data/cora"),
    ),
    Program(
        "lucidrains/x-transformers",
        "9252ed7",
        "train_copy.py",
        steps=10,
        ends=False,
        parts=("x_transformers", "train_copy.py"),
    ),
    Program("vwxyzjn/cleanrl", "fe8d8a0", "cleanrl/ppo.py --total-timesteps 1024"),
    Program(
        "facebookresearch/dlrm",
        "090956e",
        "dlrm_s_pytorch.py --use-gpu --num-batches 20 --mini-batch-size 32 --data-size 640 "
        "--arch-embedding-size 100-80-60",
    ),
    Program(
        "rtqichen/torchdiffeq",
        "657943a",
        "examples/ode_demo.py --niters 20 --test_freq 10",
        settings={"PYTHONPATH": "."},
    ),
    Program(
        "milesial/Pytorch-UNet",
        "21d7850",
        "train.py --epochs 1 --batch-size 2 --validation 25",
        prepare=data.masks,
        settings={"WANDB_MODE": "disabled"},
    ),
    Program(
        "yenchenlin/nerf-pytorch",
        "63a5a63",
        "run_nerf.py --expname made --datadir made --dataset_type blender --use_viewdirs --white_bkgd --no_batching "
        "--N_importance 16 --N_samples 16 --N_rand 64 --netwidth 64 --netwidth_fine 64",
        prepare=lambda root: data.views(root / "made"),
        steps=10,
        ends=False,
    ),
    Program(
        "jingyaogong/minimind",
        "d65ef2c",
        "train_pretrain.py --data_path ../dataset/made.jsonl --epochs 1 --batch_size 4 --hidden_size 64 "
        "--num_hidden_layers 2 --max_seq_len 64 --num_workers 0 --accumulation_steps 1 --log_interval 1",
        folder="trainer",
        prepare=lambda root: data.json_lines(root / "dataset/made.jsonl", data.text),
        reason="bfloat16 autocast is its default; within the effect of rounding noise on the CPU",
    ),
    Program(
        "Project-MONAI/tutorials",
        "b3c6c99",
        "2d_segmentation/torch/unet_training_array.py",
        parts=("2d_segmentation/torch",),
        steps=5,
    ),
    Program(
        "pyg-team/pytorch_geometric",
        "5c6461b",
        "examples/gcn.py --epochs 10",
        parts=("examples/gcn.py",),
        prepare=lambda root: data.planetoid(root / "data/Planetoid/Cora/raw"),
    ),
    Program(
        "mlfoundations/open_clip",
        "89fb801",
        "-m open_clip_train.main --dataset-type synthetic --train-num-samples 16 --batch-size 4 --epochs 1 "
        "--model ViT-S-32-alt --workers 0 --precision fp32",
        folder="src",
        parts=("src",),
    ),
    Program(
        "locuslab/TCN",
        "2f8c2b8",
        "copymem_test.py --epochs 1 --iters 10 --blank_len 100 --nhid 8 --levels 4",
        folder="TCN/copy_memory",
        parts=("TCN/copy_memory", "TCN/__init__.py", "TCN/tcn.py"),
        settings={"PYTHONPATH": "../.."},
        steps=10,
        ends=False,
    ),
    Program(
        "WongKinYiu/yolov7",
        "a207844",
        "train.py --weights '' --cfg cfg/training/yolov7-tiny.yaml --data made/data.yaml "
        "--hyp data/hyp.scratch.tiny.yaml --img-size 64 64 --batch-size 4 --epochs 1 --workers 0 --device 0",
        reason="results.txt has the device's memory, 0 on the CPU; losses within the effect of rounding noise",
        settings={"WANDB_MODE": "disabled", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"},
        prepare=lambda root: data.boxes(root / "made"),
    ),
    Program(
        "DLR-RM/rl-baselines3-zoo",
        "22e3ff2",
        "train.py --algo ppo --env CartPole-v1 -n 512 --device cuda",
        parts=("train.py", "rl_zoo3", "hyperparams"),
    ),
    Program(
        "speechbrain/speechbrain",
        "9c826ef",
        "example_asr_ctc_experiment.py hyperparams.yaml --device cuda:0",
        folder="tests/integration/ASR_CTC",
        parts=("speechbrain", "tests/integration/ASR_CTC", "tests/samples/ASR", "tests/samples/annotation"),
        settings={"PYTHONPATH": "../../.."},
    ),
    Program(
        "lululxvi/deepxde",
        "99b6620",
        "Burgers.py",
        folder="examples/pinn_forward",
        parts=("examples/pinn_forward/Burgers.py", "examples/dataset/Burgers.npz"),
        settings={"DDE_BACKEND": "pytorch"},
        steps=10,
        ends=False,
    ),
    Program(
        "google-research/torchsde",
        "eb3a00e",
        "examples/latent_sde_lorenz.py --batch_size=32 --num_iters=4",
        parts=("examples", "torchsde"),
        settings={"PYTHONPATH": "."},
    ),
    Program(
        "rasbt/LLMs-from-scratch",
        "28c65cd",
        "--nproc 2 DDP-script-torchrun.py",
        folder="appendix-A/01_main-chapter-code",
        parts=("appendix-A/01_main-chapter-code",),
    ),
)
