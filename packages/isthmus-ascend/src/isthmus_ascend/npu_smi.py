"""The command ``npu-smi``: the NPUs of the reference runtime in the layout that programs parse.

What the host chip does not measure is ``NA``. Layouts: those that vLLM Ascend, MindSpeed and msServiceProfiler read.
"""

import os
import sys
from collections.abc import Callable

from isthmus_ascend.npus import Npu, npus
from isthmus_common import __version__

USAGE = """\
Usage: npu-smi info                       NPUs, their memory and processes
       npu-smi info -l                    NPUs and the number of their chips
       npu-smi info -m                    devices by NPU and chip
       npu-smi info -t TYPE -i NPU [-c CHIP]
                                          TYPE: board, usages, memory, health, common, product
       npu-smi info -t topo               connections of the NPUs
       npu-smi -v | -h                    version, this text"""

MIB = 1 << 20
_RULE = "+---------------------------+---------------+----------------------------------------------------+"
_DOUBLE = _RULE.replace("-", "=")
_WIDTH = len(_RULE) - 4
_NONE = "NA"

Field = tuple[str, object]


class UsageError(ValueError):
    """Wrong arguments; one line."""


def main() -> None:
    """Run the command with the arguments of the process."""
    try:
        print("\n".join(answer(sys.argv[1:])))
    except UsageError as error:
        print(f"npu-smi: {error}; see npu-smi -h", file=sys.stderr)
        raise SystemExit(2) from None
    except RuntimeError as error:
        print(f"npu-smi: {error}", file=sys.stderr)
        raise SystemExit(1) from None


def answer(arguments: list[str]) -> list[str]:
    """Return the lines that the command prints.

    Raises:
        UsageError: unknown arguments, or an NPU or chip that does not exist.
        RuntimeError: the runtime reports an error.
    """
    if arguments in (["-h"], ["--help"], ["info", "-h"]):
        return USAGE.splitlines()
    if arguments == ["-v"]:
        return [f"npu-smi version: isthmus {__version__}"]
    if arguments[:1] != ["info"]:
        raise UsageError(f"unknown command: {' '.join(arguments) or '(none)'}")
    options = _options(arguments[1:])
    if not options:
        return table(npus(), __version__)
    match sorted(options), options.get("-t"):
        case ["-l"], _:
            return _listing(npus())
        case ["-m"], _:
            return _mapping(npus())
        case ["-t"], "topo":
            return _topology(npus())
        case ((["-i", "-t"] | ["-c", "-i", "-t"]), kind) if kind in _TYPES:
            return _describe(npus(), str(kind), options)
        case ["-t"], kind if kind in _TYPES:
            raise UsageError(f"-t {kind} needs -i NPU")
        case _, kind if kind is not None and kind not in (*_TYPES, "topo"):
            raise UsageError(f"unknown type: {kind}; expected {', '.join([*_TYPES, 'topo'])}")
    raise UsageError(f"unknown arguments: {' '.join(arguments)}")


def _options(words: list[str]) -> dict[str, str]:
    """Return options by their letters; those without a value have an empty one."""
    options = {}
    remaining = iter(words)
    for word in remaining:
        if word in options or word not in ("-l", "-m", "-t", "-i", "-c"):
            raise UsageError(f"{'repeated' if word in options else 'unknown'} argument: {word}")
        options[word] = "" if word in ("-l", "-m") else next(remaining, "")
        if word in ("-t", "-i", "-c") and not options[word]:
            raise UsageError(f"{word} needs a value")
    return options


def table(npus: list[Npu], version: str) -> list[str]:
    """Return the table of ``npu-smi info``."""
    numbered = any(npu.place[1] for npu in npus)  # NPUs of several chips have a column of devices
    chip = "Chip  Phy-ID" if numbered else "Chip"
    lines = [
        f"+{'-' * (_WIDTH + 2)}+",
        f"| {f'npu-smi (isthmus {version})'.ljust(33)}{f'Version: isthmus {version}'.ljust(_WIDTH - 33)} |",
        _RULE,
        "| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|",
        f"| {chip:<26}| Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |",
        _DOUBLE,
    ]
    for npu in npus:
        number, position = npu.place
        ddr, hbm = (f"{used // MIB:<5}/ {total // MIB:<5}" for used, total in _memories(npu))
        device = f"{position:<6}{npu.device}" if numbered else str(position)
        lines += [
            _row(f"{number:<6}{_table_name(npu)}", "OK", _NONE, _NONE, "0    / 0"),
            _row(device, _NONE, str(npu.utilization), ddr, hbm),
            _DOUBLE,
        ]
    return [*lines, *_process_table(npus)]


def _process_table(npus: list[Npu]) -> list[str]:
    lines = [
        _RULE,
        "| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |",
        _DOUBLE,
    ]
    for npu in npus:
        number, position = npu.place
        for process in npu.processes:
            chip, memory = f"{number:<8}{position}", process.memory // MIB
            lines.append(f"| {chip:<26}| {process.pid:<14}| {process.name[:24]:<25}| {memory:<24}|")
        if not npu.processes:
            lines.append(f"| {f'No running processes found in NPU {number}':<{_WIDTH}} |")
        lines.append(_DOUBLE)
    return lines


def _row(chip: str, state: str, first: str, second: str, third: str) -> str:
    return f"| {chip:<26}| {state:<14}| {first:<12}{second:<18}{third:<21}|"


def _table_name(npu: Npu) -> str:
    return "Ascend910" if npu.series == "910_93" else npu.name


def _memories(npu: Npu) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return used and all bytes of DDR and of HBM; a 310P has DDR only."""
    memory, none = (npu.used, npu.total), (0, 0)
    return (memory, none) if npu.series == "310P" else (none, memory)


def _fields(fields: list[Field]) -> list[str]:
    return [f"\t{name:<31}: {value}" for name, value in fields]


def _listing(npus: list[Npu]) -> list[str]:
    counts: dict[int, int] = {}
    for npu in npus:
        counts[npu.place[0]] = counts.get(npu.place[0], 0) + 1
    lines = _fields([("Total Count", len(counts))])
    for number, chips in counts.items():
        lines += ["", *_fields([("NPU ID", number), ("Chip Count", chips)])]
    return lines


def _mapping(npus: list[Npu]) -> list[str]:
    rows = [("NPU ID", "Chip ID", "Chip Logic ID", "Chip Name")]
    for npu in npus:
        number, position = npu.place
        name = "Ascend910" if npu.series == "910_93" else f"Ascend {npu.name}"
        rows.append((str(number), str(position), str(npu.device), name))
    return ["\t" + "".join(f"{cell:<31}" for cell in row).rstrip() for row in rows]


def _topology(npus: list[Npu]) -> list[str]:
    names = [f"NPU{npu.device}" for npu in npus]
    processors = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    lines = ["".join(f"{each:<11}" for each in ["", *names, "CPU Affinity"]).rstrip()]
    for name in names:
        links = ["X" if other == name else "SYS" for other in names]
        lines.append("".join(f"{each:<11}" for each in [name, *links, processors]).rstrip())
    return [
        *lines,
        "",
        "Legend:",
        "",
        "  X    = Self",
        "  SYS  = Memory of the machine, which the NPUs share",
    ]


def _describe(npus: list[Npu], kind: str, options: dict[str, str]) -> list[str]:
    """Return the fields of one type of an NPU, or of one of its chips."""
    chips = [npu for npu in npus if str(npu.place[0]) == options["-i"]]
    if not chips:
        raise UsageError(f"no NPU {options['-i']}; {len({npu.place[0] for npu in npus})} available, from 0")
    number: Field = ("NPU ID", options["-i"])
    if "-c" in options:
        count, chips = len(chips), [npu for npu in chips if str(npu.place[1]) == options["-c"]]
        if not chips:
            raise UsageError(f"no chip {options['-c']} of NPU {options['-i']}; {count} available, from 0")
        if kind == "board":
            return _fields([number, *_chip_board(chips[0])])
        return _fields([number, ("Chip ID", options["-c"]), *_TYPES[kind](chips[0])])
    if kind == "board":
        return _fields([number, *_card_board(chips)])
    lines = _fields([number, ("Chip Count", len(chips))])
    for npu in chips:
        lines += ["", *_fields([*_TYPES[kind](npu), ("Chip ID", npu.place[1])])]
    return lines


def _card_board(chips: list[Npu]) -> list[Field]:
    version = f"isthmus {__version__}"
    names = _chip_names(chips[0])[1:] if chips[0].series == "950" else []
    return [
        ("Product Name", "isthmus host chip"),
        *((name, _NONE) for name in ("Model", "Manufacturer", "Serial Number")),
        ("Software Version", version),
        ("Firmware Version", version),
        ("Compatibility", "OK"),
        *((name, _NONE) for name in ("Board ID", "PCB ID", "BOM ID", "PCIe Bus Info", "Slot ID")),
        *names,
        ("Chip Count", len(chips)),
    ]


def _chip_board(npu: Npu) -> list[Field]:
    absent = ("Chip Version", "Board ID", "PCB ID", "BOM ID", "VDie ID", "PCIe Bus Info")
    return [*_chip_names(npu), *((name, _NONE) for name in absent)]


def _chip_names(npu: Npu) -> list[Field]:
    """Return the chip's number, and its name as the tools of its series split it."""
    position: Field = ("Chip ID", npu.place[1])
    if npu.series == "910_93":
        return [position, ("NPU Name", npu.name.removeprefix("910_")), ("Chip Name", "Ascend910")]
    if npu.series == "950":
        return [position, ("NPU Name", _NONE), ("Chip Name", f"Ascend{npu.name}")]
    return [position, ("Chip Type", "Ascend"), ("Chip Name", npu.name)]


def _share(memory: tuple[int, int]) -> int:
    used, total = memory
    return used * 100 // total if total else 0


def _usages(npu: Npu) -> list[Field]:
    ddr, hbm = _memories(npu)
    return [
        ("DDR Capacity(MB)", ddr[1] // MIB),
        ("DDR Usage Rate(%)", _share(ddr)),
        ("DDR Hugepages Total(page)", 0),
        ("DDR Hugepages Usage Rate(%)", 0),
        ("HBM Capacity(MB)", hbm[1] // MIB),
        ("HBM Usage Rate(%)", _share(hbm)),
        ("Aicore Usage Rate(%)", npu.utilization),
        ("Aivector Usage Rate(%)", npu.utilization),
        ("Aicpu Usage Rate(%)", 0),
        ("Ctrlcpu Usage Rate(%)", 0),
        ("DDR Bandwidth Usage Rate(%)", 0),
        ("HBM Bandwidth Usage Rate(%)", 0),
    ]


def _memory(npu: Npu) -> list[Field]:
    ddr, hbm = _memories(npu)
    return [
        ("DDR Capacity(MB)", ddr[1] // MIB),
        ("DDR Clock Speed(MHz)", _NONE),
        ("HBM Capacity(MB)", hbm[1] // MIB),
        ("HBM Clock Speed(MHz)", _NONE),
        ("HBM Temperature(C)", _NONE),
        ("HBM Manufacturer ID", _NONE),
    ]


def _health(npu: Npu) -> list[Field]:
    return [("Health", "OK")]


def _common(npu: Npu) -> list[Field]:
    ddr, hbm = _memories(npu)
    return [
        ("Memory Usage Rate(%)", _share(ddr)),
        ("HBM Usage Rate(%)", _share(hbm)),
        ("Aicore Usage Rate(%)", npu.utilization),
        ("Aicore Freq(MHZ)", _NONE),
        ("Aicore curFreq(MHZ)", _NONE),
        ("Aicore Count", npu.cores),
        ("Temperature(C)", _NONE),
        ("NPU Real-time Power(W)", _NONE),
    ]


def _product(npu: Npu) -> list[Field]:
    return [("Product Name", "isthmus host chip"), ("Product Type", f"Ascend{npu.name} (simulated)")]


_TYPES: dict[str, Callable[[Npu], list[Field]]] = {
    "board": _chip_board,
    "usages": _usages,
    "memory": _memory,
    "health": _health,
    "common": _common,
    "product": _product,
}

if __name__ == "__main__":
    main()
