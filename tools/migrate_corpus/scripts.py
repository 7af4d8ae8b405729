"""The public CUDA training scripts of the corpus: location, arguments and data."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image


class Script(NamedTuple):
    """A script of the corpus.

    Attributes:
        repository: GitHub repository.
        revision: commit.
        file: path in the repository.
        arguments: its command line.
        parts: files and folders of the repository that it needs; empty for all.
        prepare: called with the script's folder to create its data there.
        steps: optimizer steps of each run.
        ranks: processes; 1 runs the script alone.
        needs: a package that it requires and that is not installed.
    """

    repository: str
    revision: str
    file: str
    arguments: str = ""
    parts: tuple[str, ...] = ()
    prepare: Callable[[Path], None] | None = None
    steps: int = 6
    ranks: int = 1
    needs: str = ""


def _tokens(folder: Path) -> None:
    numbers = np.random.RandomState(0)
    (folder / "data" / "made").mkdir(parents=True)
    for name in ("train", "val"):
        numbers.randint(0, 100, 20_000).astype(np.uint16).tofile(folder / "data" / "made" / f"{name}.bin")


def _results(folder: Path) -> None:
    (folder / "results").mkdir()


def _photographs(folder: Path) -> None:
    numbers = np.random.RandomState(0)
    for part in ("train", "test"):
        place = folder / "dataset" / "BSDS300" / "images" / part
        place.mkdir(parents=True)
        for index in range(8):
            pixels = numbers.randint(0, 255, (300, 300, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(place / f"{index}.jpg")


def _sentences(folder: Path) -> None:
    numbers = np.random.RandomState(0)
    for file in ("train", "wikitext-2/train", "wikitext-2/valid", "wikitext-2/test"):
        words = numbers.randint(0, 200, (600, 12))
        lines = [" ".join(f"w{word}" for word in line) for line in words]
        place = folder / "data" / f"{file}.txt"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("\n".join(lines) + "\n")


def _package(folder: Path) -> None:
    """Copy minGPT's package next to the script in place of installing it."""
    shutil.copytree(folder.parents[1] / "mingpt", folder / "mingpt")


def _examples(
    folder: str, arguments: str = "", *more: str, script: str = "main.py", **options: object
) -> Script:
    parts = (folder.partition("/")[0] if not folder.startswith("distributed") else folder, *more)
    return Script(
        "pytorch/examples",
        "1bef748fab064e2fc3beddcbda60fd51cb9612d2",
        f"{folder}/{script}",
        arguments,
        parts,
        **options,  # type: ignore[arg-type]
    )


def _tutorial(folder: str, **options: object) -> Script:
    folder = f"tutorials/{folder}"
    revision = "0500d3df5a2a8080ccfccbc00aca0eacc21818db"
    return Script("yunjey/pytorch-tutorial", revision, f"{folder}/main.py", "", (folder,), **options)  # type: ignore[arg-type]


def _gan(name: str, arguments: str = "--n_cpu 0", script: str = "", needs: str = "") -> Script:
    folder = f"implementations/{name}"
    revision = "36d3c77e5ff20ebe0aeefd322326a134a279b93e"
    file = f"{folder}/{script or name}.py"
    arguments = f"--n_epochs 2 --batch_size 16 {arguments}".strip()
    return Script("eriklindernoren/PyTorch-GAN", revision, file, arguments, (folder,), steps=8, needs=needs)


SCRIPTS = (
    _examples("mnist", "--epochs 1 --log-interval 1"),
    _examples("mnist_rnn", "--cuda --epochs 1 --log-interval 1"),
    _examples("mnist_forward_forward", "--epochs 3 --train_size 256 --test_size 64"),
    _examples("mnist_hogwild", "--cuda --epochs 1 --num-processes 1 --log-interval 1"),
    _examples("vae", "--epochs 1 --log-interval 1", prepare=_results),
    _examples("siamese_network", "--epochs 1 --log-interval 1"),
    _examples("dcgan", "--cuda --dataset fake --imageSize 64 --batchSize 4 --workers 0 --manualSeed 1", steps=4),
    _examples("imagenet", "--dummy --gpu 0 -b 4 -j 0 -p 1 --epochs 1 --seed 1", steps=2),
    _examples("super_resolution", "--cuda --upscale_factor 3 --batchSize 4 --nEpochs 1 --threads 0",
              prepare=_photographs, steps=2),
    _examples("word_language_model", "--cuda --epochs 1 --emsize 32 --nhid 32 --log-interval 1 --bptt 10",
              prepare=_sentences, steps=0),
    _examples("word_language_model", "--cuda --epochs 1 --model Transformer --emsize 32 --nhid 32 --nhead 2 "
              "--bptt 10 --log-interval 1", prepare=_sentences, steps=0),
    _examples("gcn", needs="the Cora data set"),
    _examples("fast_neural_style/neural_style", needs="weights of VGG16", script="neural_style.py"),
    _examples("language_translation", needs="torchtext"),
    _examples("distributed/ddp-tutorial-series", "2 1", script="single_gpu.py"),
    _examples("distributed/ddp-tutorial-series", "1 1", script="multigpu.py"),
    _examples("distributed/ddp-tutorial-series", "1 1", script="multigpu_torchrun.py", ranks=2),
    _examples("distributed/ddp-tutorial-series", "1 1", script="multinode.py", ranks=2),
    _examples("distributed/ddp", "--local_world_size 2", script="example.py", ranks=2),
    _examples("distributed/minGPT-ddp", needs="hydra and omegaconf", script="mingpt/main.py"),
    _examples("distributed/tensor_parallelism", script="tensor_parallel_example.py", ranks=2),
    _examples("distributed/tensor_parallelism", script="sequence_parallel_example.py", ranks=2),
    _tutorial("01-basics/feedforward_neural_network"),
    _tutorial("02-intermediate/convolutional_neural_network"),
    _tutorial("02-intermediate/deep_residual_network", steps=2),
    _tutorial("02-intermediate/recurrent_neural_network"),
    _tutorial("02-intermediate/bidirectional_recurrent_neural_network"),
    _tutorial("02-intermediate/language_model", prepare=_sentences, steps=2),
    _tutorial("03-advanced/generative_adversarial_network"),
    _tutorial("03-advanced/variational_autoencoder"),
    *(_gan(name) for name in ("gan", "dcgan", "wgan", "wgan_gp", "lsgan", "acgan", "aae", "cgan", "began", "bgan",
                              "ebgan", "dragan", "infogan", "sgan", "softmax_gan", "wgan_div", "relativistic_gan")),
    _gan("cogan", needs="the MNIST-M data set"),
    _gan("cluster_gan", "", script="clustergan"),
    Script("karpathy/nanoGPT", "3adf61e154c3fe3fca428ad6bc3818b27a3b8291", "train.py",
           "--dataset=made --n_layer=2 --n_head=2 --n_embd=32 --block_size=32 --batch_size=4 --eval_iters=1 "
           "--gradient_accumulation_steps=2 --compile=False --dtype=float32 --dropout=0.1", prepare=_tokens),
    Script("karpathy/nanoGPT", "3adf61e154c3fe3fca428ad6bc3818b27a3b8291", "train.py",
           "--dataset=made --n_layer=2 --n_head=2 --n_embd=32 --block_size=32 --batch_size=4 --eval_iters=1 "
           "--gradient_accumulation_steps=2 --compile=False --dtype=float32", prepare=_tokens, ranks=2),
    Script("karpathy/minGPT", "37baab71b9abea1b76ab957409a1cc2fbfba8a26", "projects/adder/adder.py",
           "--trainer.num_workers=0 --trainer.batch_size=8", prepare=_package),
    Script("kuangliu/pytorch-cifar", "49b7aa97b0c12fe0d4054e670403a16b6b834ddd", "main.py", steps=1),
    Script("akamaster/pytorch_resnet_cifar10", "d5489e8995e81e91ce6b1d69dcc98ad579b0b153", "trainer.py",
           "--arch resnet20 --epochs 1 -b 16 -j 1 -p 1", steps=4),
    Script("xternalz/WideResNet-pytorch", "1171f93d5a9ae28eb5e603e5e7545f488d0df6ab", "train.py",
           "--layers 10 --widen-factor 1 -b 8 -p 1", steps=4),
    Script("weiaicunzai/pytorch-cifar100", "11d8418f415b261e4ae3cb1ffe20d06ec95b98e4", "train.py",
           "-net mobilenet -gpu -b 8", steps=3),
    Script("bearpaw/pytorch-classification", "24f1c456f48c78133088c4eefd182ca9e6199b03", "cifar.py",
           needs="a Python before 3.7"),
    Script("NVIDIA/apex", "6424da3b4faa6c8f062da4a48c424fff3f02d42d", "examples/imagenet/main_amp.py", "",
           ("examples/imagenet",), needs="apex and NVIDIA DALI"),
    Script("KellerJordan/modded-nanogpt", "f411b3d346aa52d3504324ca93c230fd84c6c07f", "train_gpt.py", "",
           ("train_gpt.py",), needs="kernels of its own in Triton"),
)  # fmt: skip
