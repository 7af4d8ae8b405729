"""Mutation testing of the conformance suite: does it detect wrong kernels?

    python -m tools.mutation --output mutation.json

Mistakes of three kinds are planted in correct kernels (the NumPy library's; PyTorch's CPU kernels for operators that
it lacks), and the cases of the suite judge the results:

- :mod:`.inputs`, :mod:`.results`, :mod:`.calls`: mistakes around a kernel, for any operator: a stride or an optional
  argument ignored, a tail not written, a cached result, a missing wait for a stream;
- :mod:`.source`: changes of single expressions in the source of the NumPy library: an operator, a constant, a term
  dropped, eps outside the root;
- :mod:`.reports`: publicly reported mistakes, each with its report.

A mutant is caught when any case of its operator fails. Mutants that no input can distinguish from the correct kernel
are listed in :mod:`.equivalent` with a proof. Any other survivor is a gap in the suite.
"""
