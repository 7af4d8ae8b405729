"""Synthetic torchvision data sets: a pattern for each class plus noise. They are small, so that an epoch is short."""

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

__all__ = ["CIFAR10", "CIFAR100", "MNIST", "FashionMNIST", "ImageFolder", "LSUN"]


class Made(Dataset):
    classes_number, size, channels, number = 10, 28, 1, 512

    def __init__(
        self, root=None, train=True, transform=None, target_transform=None, download=False, **options
    ):
        self.root, self.train = root, train
        self.transform, self.target_transform = transform, target_transform
        self.classes = [str(index) for index in range(self.classes_number)]
        self.class_to_idx = {name: index for index, name in enumerate(self.classes)}
        number = self.number if train else self.number // 4
        numbers = np.random.RandomState(int(train))
        labels = numbers.randint(0, self.classes_number, number)
        patterns = np.random.RandomState(7).randint(
            0, 200, (self.classes_number, self.size, self.size, self.channels)
        )
        noise = numbers.randint(0, 56, (number, self.size, self.size, self.channels))
        images = (patterns[labels] + noise).astype(np.uint8)
        self.targets = labels.tolist()
        self.data = images

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        image, target = Image.fromarray(np.asarray(self.data[index]).squeeze()), int(self.targets[index])
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target


class MNIST(Made):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.data = torch.from_numpy(self.data[..., 0])
        self.targets = torch.tensor(self.targets)


class FashionMNIST(MNIST):
    pass


class CIFAR10(Made):
    size, channels = 32, 3


class CIFAR100(CIFAR10):
    classes_number = 100


class ImageFolder(Made):
    size, channels, number = 64, 3, 128

    def __init__(self, root, transform=None, target_transform=None, **options):
        super().__init__(root, True, transform, target_transform)


class LSUN(ImageFolder):
    def __init__(self, root, classes="train", transform=None, target_transform=None):
        super().__init__(root, transform, target_transform)
