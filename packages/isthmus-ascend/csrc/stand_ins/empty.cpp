// Libraries that applications are linked with and take nothing from here: libgraph.so, libfmk_parser.so and
// libascend_protobuf.so.
