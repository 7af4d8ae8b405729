"""Models by the path of a Hugging Face configuration or the name of a class, without memory for their weights."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from isthmus_common.text import first_line

_TOKENS = 512  # of a sequence, unless the model's longest one is shorter


class ModelError(ValueError):
    """The model cannot be built or called; the message is one line."""


class Input(NamedTuple):
    """Shape and dtype of an input, as ``--input`` gives it."""

    shape: tuple[int, ...]
    dtype: torch.dtype


class Model(NamedTuple):
    """A model on the device meta, and its inputs.

    Attributes:
        module: its parameters and buffers have no data.
        positional: inputs by position.
        named: inputs by name.
        labels: shape of ``labels`` in a training step; None for a model that takes none.
    """

    module: nn.Module
    positional: Sequence[Input]
    named: Mapping[str, Input]
    labels: tuple[int, ...] | None


def parse_input(text: str) -> Input:
    """Return an input given as ``1x3x224x224`` or ``1x512:int64``.

    Raises:
        ModelError: not a shape and a dtype.
    """
    sizes, _, name = text.partition(":")
    dtype = getattr(torch, name or "float32", None)
    if not re.fullmatch(r"\d+(x\d+)*", sizes) or not isinstance(dtype, torch.dtype):
        raise ModelError(f"--input {text}: expected a shape and a dtype, such as 1x3x224x224 or 1x512:int64")
    return Input(tuple(map(int, sizes.split("x"))), dtype)


def load(name: str, inputs: Sequence[Input], trust_code: bool) -> Model:
    """Build a model.

    Args:
        name: a folder with a Hugging Face config.json, such a file, or ``package.module:Class``, where Class is an
            nn.Module that takes no arguments, or a function without arguments that returns a module.
        inputs: arguments of its forward; for a Hugging Face model the first takes the place of its own.
        trust_code: run the code that a Hugging Face configuration brings along.

    Raises:
        ModelError: no such model, or it cannot be built.
    """
    path = Path(name).expanduser()
    if path.exists() or name.endswith(".json"):
        return _of_config(path, inputs, trust_code)
    if os.sep in name or not re.fullmatch(r"\w+(\.\w+)*[:.]\w+", name):
        raise ModelError(
            f"{name}: no such file or folder; give one with a config.json, or package.module:Class"
        )
    return _of_class(name, inputs)


def _of_class(name: str, inputs: Sequence[Input]) -> Model:
    module_name, _, attribute = name.rpartition(":" if ":" in name else ".")
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        made = getattr(importlib.import_module(module_name), attribute)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if f"{module_name}.".startswith(f"{missing}."):
            raise ModelError(f"{name}: no module {missing} in the current folder or installed") from None
        raise ModelError(f"{name}: needs the package {missing}, which is not installed") from None
    except AttributeError:
        raise ModelError(f"{name}: {module_name} has no {attribute}") from None
    except Exception as error:
        raise ModelError(f"{name}: {module_name} cannot be imported: {_describe(error)}") from None
    finally:
        sys.path.remove(folder)
    needed = [each.name for each in _parameters(made) if each.default is each.empty]
    if not callable(made) or needed:
        reason = f"takes arguments ({', '.join(needed)})" if needed else "is not a class or a function"
        raise ModelError(f"{name}: {reason}; name a function without arguments that returns the module")
    module = _on_meta(name, made)
    if not isinstance(module, nn.Module):
        raise ModelError(f"{name}: returns {type(module).__name__}, expected a torch.nn.Module")
    if not inputs:
        raise ModelError(
            f"{name}: give the shape of each argument of its forward, such as --input 1x3x224x224"
        )
    return Model(module, inputs, {}, None)


def _parameters(made: Any) -> list[inspect.Parameter]:
    """Return the parameters of a callable that have to be given."""
    try:
        found = inspect.signature(made).parameters.values()
    except (TypeError, ValueError):
        return []
    return [each for each in found if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]


def _on_meta(name: str, build: Any) -> Any:
    try:
        with torch.device("meta"):
            return build()
    except Exception as error:
        raise ModelError(f"{name}: cannot be built without data (device meta): {_describe(error)}") from None


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


def _of_config(path: Path, inputs: Sequence[Input], trust_code: bool) -> Model:
    file = path / "config.json" if path.is_dir() else path
    try:
        table = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise ModelError(f"{file}: not JSON: {error}") from None
    if not isinstance(table, dict) or "model_type" not in table:
        raise ModelError(f"{file}: not a Hugging Face configuration: it has no model_type")
    try:
        import transformers
    except ImportError:
        raise ModelError(f"{file}: needs the package transformers; run `pip install transformers`") from None
    own_code = table.get("auto_map") or {}
    if table["model_type"] in transformers.CONFIG_MAPPING:
        own_code = {}  # a model that transformers has needs no other code
    elif not own_code:
        raise ModelError(
            f"{file}: transformers {transformers.__version__} has no model type {table['model_type']!r}"
        )
    elif not trust_code:
        raise ModelError(
            f"{file}: the model is code beside it (auto_map); read it, then give --trust-remote-code to run it"
        )
    module = _on_meta(str(file), lambda: _build(transformers, file, own_code))
    return _with_inputs(file, module, inputs)


def _build(transformers: Any, file: Path, own_code: Mapping[str, str]) -> Any:
    trust = bool(own_code)
    place = file.parent if file.name == "config.json" else file
    config = transformers.AutoConfig.from_pretrained(place, trust_remote_code=trust, local_files_only=True)
    if trust:
        auto = next((key for key in own_code if key.startswith("AutoModel")), "AutoModel")
        return getattr(transformers, auto).from_config(config, trust_remote_code=True)
    named = getattr(transformers, (config.architectures or [""])[0], None)
    if named is not None:
        return named._from_config(config)
    auto = transformers.AutoModelForCausalLM
    auto = auto if type(config) in auto._model_mapping else transformers.AutoModel
    return auto.from_config(config)


def _with_inputs(file: Path, module: Any, inputs: Sequence[Input]) -> Model:
    config, main = module.config, module.main_input_name
    if inputs:
        first = inputs[0]
    elif main == "input_ids":
        longest = getattr(config, "max_position_embeddings", None) or _TOKENS
        first = Input((1, min(_TOKENS, longest)), torch.int64)
    elif main == "pixel_values":
        size = getattr(config, "image_size", 224)
        sides = (size, size) if isinstance(size, int) else tuple(size)
        first = Input((1, getattr(config, "num_channels", 3), *sides), torch.float32)
    else:
        raise ModelError(f"{file}: give the shape of its input {main}, such as --input 1x80x3000")
    if main == "input_ids":
        first = first._replace(dtype=torch.int64)
    elif first.dtype == torch.float32:
        first = first._replace(dtype=module.dtype)
    named = {main: first}
    if config.is_encoder_decoder:
        named["decoder_input_ids"] = Input((first.shape[0], 16), torch.int64)
    kind = type(module).__name__
    labels: tuple[int, ...] | None = None
    if "labels" in inspect.signature(module.forward).parameters:
        if kind.endswith(("SequenceClassification", "ImageClassification")):
            labels = first.shape[:1]
        elif main == "input_ids" or config.is_encoder_decoder:
            labels = named.get("decoder_input_ids", first).shape
    return Model(module, inputs[1:], named, labels)
