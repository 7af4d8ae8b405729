"""Mutation testing of the conformance suite: does it detect wrong kernels?

    python -m tools.mutation --seed 1 --output mutation.json

One mistake at a time is planted in a correct kernel, and the cases of the suite judge the results:

- :mod:`.classes`: mistakes around a kernel of the NumPy library, a module for each class: an index cut to 16 bits, a
  partial block not written, an address rounded down, an argument ignored, a workspace overrun;
- :mod:`.source`: changes of single expressions in the source of the NumPy library, with the reductions of
  :mod:`.reductions`: an operator, a constant, a term dropped, a sum that stops at 4,096;
- :mod:`.compiled`: changes of text in the compiled kernels;
- :mod:`.bank`: publicly reported mistakes, each with its report.

A mistake applies where a kernel could have it, by the operator's schema, dtypes and ranks (:mod:`.ranks`), not by the
suite's samples. :mod:`.draw` draws mutants by seed; the score is by class. A mutant is caught when any case of its
operator fails. Mutants that no input can distinguish from the correct kernel are listed in :mod:`.equivalent` with a
proof. Any other survivor is a gap in the suite.
"""
