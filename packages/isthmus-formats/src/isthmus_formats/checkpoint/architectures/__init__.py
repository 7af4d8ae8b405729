"""Architectures: the parameters of a model from its Hugging Face configuration, and their names there.

An architecture is one file of this folder with three names: ``TYPES``, the values of ``model_type`` it serves;
``NAMES``, the table of its names in Hugging Face files (see :mod:`isthmus_formats.checkpoint.name_tables`); and
``parameters(config)``. It is found without registration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from isthmus_formats.checkpoint.errors import CheckpointError
from isthmus_formats.checkpoint.layout import Parameter
from isthmus_formats.checkpoint.name_tables import Rule, table

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Model:
    """A model: its architecture and the parameters of one configuration.

    Attributes:
        config: the content of config.json.
        parameters: its parameters; a tied output is not among them.
        names: the table of Hugging Face names.
    """

    config: Config
    parameters: tuple[Parameter, ...]
    names: tuple[Rule, ...]

    @property
    def type(self) -> str:
        """The architecture, as in config.json."""
        return str(self.config["model_type"])

    @property
    def layers(self) -> int:
        """The number of layers."""
        return 1 + max(each.layer for each in self.parameters if each.layer is not None)

    @property
    def further_layers(self) -> range:
        """The numbers of the layers that predict further tokens, which are no parameters."""
        return range(self.layers, self.layers + int(self.config.get("num_nextn_predict_layers") or 0))

    @property
    def groups(self) -> int:
        """The number of query groups, that is key-value heads."""
        heads = self.config.get("num_attention_heads", self.config.get("n_head"))
        return int(self.config.get("num_key_value_heads") or heads or 1)

    @property
    def experts(self) -> int:
        """The number of experts; 0 if there are none."""
        return max((each.expert + 1 for each in self.parameters if each.expert is not None), default=0)

    @property
    def vocabulary(self) -> int:
        """The number of rows of the embedding."""
        return next(each.shape[0] for each in self.parameters if each.has_vocabulary)

    @property
    def is_tied(self) -> bool:
        """Whether the output is the embedding."""
        return all(each.role != "output.weight" for each in self.parameters)


@cache
def _architectures() -> dict[str, ModuleType]:
    modules = [import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__)]
    return {name: module for module in modules for name in getattr(module, "TYPES", ())}


def supported_types() -> list[str]:
    """Return the supported values of ``model_type``."""
    return sorted(_architectures())


def model(config: Config) -> Model:
    """Return the model of a configuration.

    Raises:
        CheckpointError: the architecture is unknown, or the configuration lacks an entry.
    """
    name = str(config.get("model_type"))
    if name not in _architectures():
        raise CheckpointError(
            f"unknown architecture {name!r} in config.json; expected {', '.join(supported_types())}"
        )
    architecture = _architectures()[name]
    try:
        parameters = tuple(architecture.parameters(config))
        sizes = {size for each in parameters for size in each.shape}
        if not parameters or any(type(size) is not int or size < 1 for size in sizes):
            raise ValueError("a parameter has no size")
        found = Model(config, parameters, table(architecture.NAMES))
        _ = found.groups, found.further_layers  # sizes that are not of parameters
    except KeyError as error:
        raise CheckpointError(f"config.json of {name} lacks {error}") from None
    except CheckpointError:
        raise
    except (ValueError, TypeError, ArithmeticError) as error:
        wrong = [f"{key} {json.dumps(value)}" for key, value in config.items() if _is_wrong_size(key, value)]
        raise CheckpointError(f"config.json of {name}: not a size: {', '.join(wrong) or error}") from None
    return found


def _is_wrong_size(key: str, value: Any) -> bool:
    endings = ("_size", "_layers", "_heads", "_dim", "_rank", "_experts", "n_embd", "n_layer", "n_head")
    return key.endswith(endings) and (type(value) is not int or value < 1)


def read_config(path: Path) -> Config:
    """Read a config.json.

    Raises:
        CheckpointError: the file is not one.
    """
    try:
        config = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise CheckpointError(f"{path}: not JSON: {error}") from None
    if not isinstance(config, dict):
        raise CheckpointError(f"{path}: not a configuration of a model; expected an object")
    return config
