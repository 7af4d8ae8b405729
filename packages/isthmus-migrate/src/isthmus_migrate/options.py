"""The options that ``isthmus migrate verify`` and ``trace`` set for the processes of a job."""

from isthmus_common.options import Option, Table

# fmt: off
OPTIONS = (
    Option("verify", "text", "", "every Python of a job",
           "set by isthmus migrate verify: folder of the records",
           start="isthmus_migrate.verify.recorder:start", moment="python"),
    Option("migrate_trace", "text", "", "every Python of a job",
           "set by isthmus migrate trace: folder of the records",
           start="isthmus_migrate.trace.recorder:start", moment="python"),
)
# fmt: on
TABLE = Table(OPTIONS)
