"""Data sets between frameworks: ``isthmus data``.

Files are read row by row (:mod:`.sources`); a form (:mod:`.forms`) turns a row into a :class:`.records.Record`.
Records are written in another form (:mod:`.convert`), or rendered by a chat template, tokenized and masked
(:mod:`.tokenize`), packed (:mod:`.packing`) and written as samples in one of :mod:`.formats`.
"""
