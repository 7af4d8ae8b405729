"""Convert training on one device or by DataParallel to DistributedDataParallel, each script completely or not at all.

The training is recognised (:mod:`isthmus.migrate.whole.ddp.training`) and changed by text edits
(:mod:`isthmus.migrate.whole.edits`); all other text is preserved. Unsupported code raises
:class:`isthmus.migrate.whole.program.NotRecognised`, and the script is not changed.
"""
