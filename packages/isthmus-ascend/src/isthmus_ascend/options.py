"""The options of the reference runtime; the build writes them for C++ (``ascend_options.h``)."""

from isthmus_ascend.cann_version import DEFAULT, check_version
from isthmus_ascend.products import check_product
from isthmus_common.options import Option, Table

# fmt: off
OPTIONS = (
    Option("ascend_devices", "integer", None, "isthmus ascend",
           "number of NPUs; empty: as ISTHMUS_HOST_DEVICES", least=0, most=64),
    Option("ascend_memory", "size", "64GiB", "isthmus ascend",
           "memory of one NPU: 64GiB, 512MiB, or bytes; at most the machine's, and used as it is needed",
           least=2 << 20, most=64 << 40),
    Option("ascend_soc", "text", "Ascend910B2", "isthmus ascend", "product that the NPUs are",
           check=check_product),
    Option("ascend_cann_version", "text", DEFAULT, "isthmus ascend", "release of CANN to report: 8.2.RC1, 8.5.0",
           check=check_version),
    Option("ascend_strict", "switch", True, "isthmus ascend",
           "refuse what the product refuses, and keep a stream stopped after a failure; 0: accept, and go on"),
    Option("ascend_report", "text", "", "isthmus ascend",
           "file for `isthmus ascend report`: functions called, refused and missing"),
    Option("ascend_fault", "text", "", "isthmus ascend",
           "failure to inject, as `isthmus ascend fault` sets it: lost, ecc, memory, core, oom, hang or link, then "
           ":call and :function"),
)
# fmt: on
TABLE = Table(OPTIONS)
