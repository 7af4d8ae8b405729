"""``isthmus data inspect``: what a file holds, with decoded samples in which the trained tokens are marked."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from isthmus.data import forms, formats, run, sources
from isthmus.data.records import DataError, RowError
from isthmus.data.samples import Sample, Stored
from isthmus.data.templates import Template, find
from isthmus.data.tokenizers import Tokenizer, load


class Part(NamedTuple):
    """A part of a sample.

    Attributes:
        text: its text, or its token numbers where there is no tokenizer.
        trained: whether its tokens are trained on.
    """

    text: str
    trained: bool
