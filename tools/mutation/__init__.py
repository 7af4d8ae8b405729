"""Mutation testing of the conformance suite: whether it detects wrong kernels.

    python -m tools.mutation --output mutation.json

Right kernels (the NumPy library; PyTorch on the CPU for operators that it has not) are made wrong in three ways,
and the cases of the suite judge what comes out:

- :mod:`.inputs`, :mod:`.results`, :mod:`.calls`: mistakes around a kernel, which fit any operator: a stride that is
  ignored, an optional argument forgotten, the tail not written, a result remembered, a stream not waited for;
- :mod:`.source`: changes of single expressions in the source of the NumPy library: an operator, a constant, a term
  dropped, eps outside the root;
- :mod:`.reports`: mistakes that were made in public, each with the report that tells of it.

A mutant is caught when any case of its operator fails. One that no input can tell from the right kernel is listed
in :mod:`.equivalent` with the proof. What remains is a hole of the suite.
"""
