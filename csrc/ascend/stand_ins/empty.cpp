// Libraries that applications are linked with and take nothing from here: libge_runner.so, libgraph.so and
// others.
