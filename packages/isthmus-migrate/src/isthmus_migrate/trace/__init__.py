"""Record at run time which strings, comparisons and calls of a script are devices."""
