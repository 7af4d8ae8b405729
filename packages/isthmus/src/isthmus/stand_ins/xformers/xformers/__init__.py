"""xFormers (https://github.com/facebookresearch/xformers): its operators, implemented by :mod:`isthmus.ops`."""

__version__ = "0.0.35+isthmus"
