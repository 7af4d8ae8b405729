"""Makes the traces of benchmarks/traces again."""
