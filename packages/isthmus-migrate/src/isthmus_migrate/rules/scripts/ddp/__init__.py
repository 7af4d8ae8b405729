"""Convert training on one device or by DataParallel to DistributedDataParallel, each script completely or not at all.

The training is recognised (:mod:`isthmus_migrate.rules.scripts.ddp.training`) and changed by text edits
(:mod:`isthmus_migrate.rules.scripts.edits`); all other text is preserved. Unsupported code raises
:class:`isthmus_migrate.rules.scripts.program.NotRecognised`, and the script is not changed.
"""
