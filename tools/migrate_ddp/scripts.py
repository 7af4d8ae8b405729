"""Public training scripts, most of them with nn.DataParallel: location, arguments and what their folder needs."""

from __future__ import annotations

from pathlib import Path

from tools.migrate_corpus.scripts import Script


def _cutout_folders(folder: Path) -> None:
    for name in ("logs", "checkpoints"):
        (folder / name).mkdir()


def _script(repository: str, revision: str, file: str, arguments: str = "", **options: object) -> Script:
    return Script(repository, revision, file, arguments, **options)  # type: ignore[arg-type]


SCRIPTS = (
    _script("akamaster/pytorch_resnet_cifar10", "d5489e8995e81e91ce6b1d69dcc98ad579b0b153", "trainer.py",
            "--arch resnet20 --epochs 1 -b 16 -j 1 -p 1 --lr 0.01", steps=3),
    _script("meliketoy/wide-resnet.pytorch", "292b3ede0651e349dd566f9c23408aa572f1bd92", "main.py",
            "--depth 10 --widen_factor 1 --dropout 0 --lr 0.01", steps=3),
    _script("prlz77/ResNeXt.pytorch", "39fb8d03847f26ec02fb9b880ecaaa88db7a7d16", "train.py",
            "data cifar10 --ngpu 2 --depth 11 --cardinality 2 --base_width 4 --widen_factor 1 -b 16 --epochs 1 "
            "--prefetch 0 -lr 0.01", steps=4),
    _script("soapisnotfat/pytorch-cifar10", "1e49822683bf0800a3f4f7f0df778cb5ba6a87fe",
            "main.py", "--trainBatchSize 8 --epoch 1", steps=2),
    _script("uoguelph-mlrg/Cutout", "287f934ea5fa00d4345c2cccecf3552e2b1c33e3", "train.py",
            "--batch_size 8 --data_augmentation --cutout --learning_rate 0.01", prepare=_cutout_folders, steps=2),
    _script("xternalz/WideResNet-pytorch", "1171f93d5a9ae28eb5e603e5e7545f488d0df6ab", "train.py",
            "--layers 10 --widen-factor 1 -b 16 -p 1", steps=4),
    _script("kuangliu/pytorch-cifar", "49b7aa97b0c12fe0d4054e670403a16b6b834ddd", "main.py", "--lr 0.01", steps=2),
    _script("clovaai/CutMix-PyTorch", "2d8eb68faff7fe4962776ad51d175c3b01a25734", "train.py",
            "--dataset cifar10 --net_type resnet --depth 20 -b 16 --epochs 1 --expname made -j 0", steps=3),
    _script("4uiiurz1/pytorch-nested-unet", "557ea02f0b5d45ec171aae2282d2cd21562a633e", "train.py"),
    _script("bamos/densenet.pytorch", "d1cd5e1957975628286e516512c6d1c14430f810", "train.py"),
    _script("facebookresearch/mixup-cifar10", "eaff31ab397a90fbc0a4aac71fb5311144b3608b", "train.py"),
    _script("HobbitLong/SupContrast", "66a8fe53880d6a1084b2e4e0db0a019024d6d41a", "main_ce.py"),
    _script("HobbitLong/SupContrast", "66a8fe53880d6a1084b2e4e0db0a019024d6d41a", "main_supcon.py"),
    _script("pytorch/examples", "1bef748fab064e2fc3beddcbda60fd51cb9612d2", "dcgan/main.py", parts=("dcgan",)),
    _script("weiaicunzai/pytorch-cifar100", "11d8418f415b261e4ae3cb1ffe20d06ec95b98e4", "train.py"),
    _script("andreasveit/densenet-pytorch", "63152f4a40644b62717749536ed2e011c6e4d9ab", "train.py"),
    _script("bearpaw/pytorch-classification", "24f1c456f48c78133088c4eefd182ca9e6199b03", "cifar.py"),
    _script("chengyangfu/pytorch-vgg-cifar10", "9c5da95297d2e49d547c92cb8f0ffdd448262c8a", "main.py"),
    _script("zhunzhong07/Random-Erasing", "ed05424dcb2fd502eafb41b2b1151fb7cd16cbcd", "cifar.py"),
)  # fmt: skip
