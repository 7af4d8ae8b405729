"""The progress lines of a build."""

from __future__ import annotations

import io

from isthmus.binaries.progress import follow

BUILD = """\
running build_ext
building 'isthmus._C' extension
[1/22] g++ -MMD -I/src/csrc -c -c /src/build/groups/dispatch_1.cpp -o /src/build/dispatch_1.o -O2
[2/22] g++ -MMD -I/src/csrc -c -c /src/csrc/loader/elf.cpp -o /src/build/elf.o -O2
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_file_gets_a_line_every_ten_seconds_and_the_log_everything() -> None:
    log, output = io.StringIO(), io.StringIO()
    follow(BUILD.splitlines(keepends=True), log, output)
    assert log.getvalue() == BUILD
    assert output.getvalue() == "isthmus: building isthmus._C 1/22 dispatch_1.cpp\n"


def test_a_terminal_gets_one_line_that_is_updated() -> None:
    output = Terminal()
    follow(BUILD.splitlines(keepends=True), io.StringIO(), output)
    assert output.getvalue().split("\r\033[K") == [
        "",
        "isthmus: building isthmus._C 1/22 dispatch_1.cpp",
        "isthmus: building isthmus._C 2/22 loader/elf.cpp",
        "",
    ]
