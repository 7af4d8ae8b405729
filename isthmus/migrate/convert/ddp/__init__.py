"""Training on one device, or by DataParallel, to DistributedDataParallel: one script at a time, wholly or not at all.

What matters in a script is recognised (:mod:`isthmus.migrate.convert.ddp.training`), and the change is a list of text
edits (:mod:`isthmus.migrate.convert.edits`), so that every other character stays. What is not recognised raises
:class:`isthmus.migrate.convert.program.NotRecognised`, and the script is left as it is.
"""
