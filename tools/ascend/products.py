"""Print rows of csrc/opapi/products.table from the documents and tests of op-plugin and torch_npu (BSD-3).

    python -m tools.ascend.products OP_PLUGIN TORCH_NPU [TESTED]

OP_PLUGIN and TORCH_NPU are checkouts. The documents list the dtypes of an operator's tensors by product; a function
is given those of all operators that call it, and none if one of them is not documented. TESTED has lines
`Function parameter dtype`: calls of op-plugin's own tests, which a card accepts, so that they are accepted too.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

from isthmus_ascend.generate.table import Row, rows
from tools.ascend.affected import callers, operators

NATIVE = "docs/zh/api/native_api/pytorch_2-13-0"
CUSTOM = "docs/zh/custom_APIs"
SHORT = {
    "bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64", "float": "float32",
    "double": "float64", "half": "float16",
}  # fmt: skip
DTYPE = re.compile(
    r"bfloat16|bf16|float8_e4m3fn|float8_e5m2|float8_e8m0|hifloat8|float(?:16|32|64)|fp(?:16|32|64)|u?int(?:8|16|32|64)"
    r"|int4|bool|complex(?:32|64|128)"
)
# Terms of the documents, by series.
TERMS = {
    "910": ("Atlas 训练系列产品",),
    "310P": ("Atlas 推理系列产品", "Atlas 推理系列加速卡产品"),
    "910B": ("Atlas A2", "Atlas 800I A2"),
    "910_93": ("Atlas A3",),
    "950": ("Ascend 950", "Ascend 950PR", "Ascend 950DT"),
}
# The lists of native operators name what was verified, and cards accept more (float64 in mul): only those of matrix
# products are taken, which agree with the pages of aclnnMm; dtypes of a kind that they have another of are accepted.
FILLED = "filled"
# Parameters whose documents tie dtypes to other arguments: the table has rows of its own, or none.
BY_HAND = {
    ("QuantMatmulV5", "offset"),
    ("QuantMatmulWeightNz", "offset"),
    ("ChunkGatedDeltaRule", "initial_state"),
}
NEWER = {"_scaled_mm", "_scaled_mm_v2"}  # of dtypes that the older products lack
PRODUCTS = {"mm", "matmul", "bmm", "baddbmm", "mv"}
KINDS = (("bfloat16", "float16"),)


def call_sites(op_plugin: Path) -> dict[str, set[str]]:
    """Return the operators that call each function."""
    known, found = operators((op_plugin / "op_plugin/config/op_plugin_functions.yaml").read_text())
    for path in sorted((op_plugin / "op_plugin/ops/opapi").rglob("*.cpp")):
        for function, names in callers(path.read_text(), known).items():
            found[function] |= names
    return found


def dtypes(text: str) -> list[str]:
    """Return the dtypes that a text names, in order."""
    return list(dict.fromkeys(SHORT.get(name, name) for name in DTYPE.findall(text.lower())))


def native(torch_npu: Path) -> dict[str, tuple[set[str], str]]:
    """Return the dtypes of the first tensor of native operators, and the document."""
    found: dict[str, tuple[set[str], str]] = {}
    for path in sorted((torch_npu / NATIVE).glob("torch*.md")):
        for section in re.split(r"^#{2,5} (?=torch)", path.read_text(), flags=re.MULTILINE)[1:]:
            name = section.split()[0].replace("\\", "").rpartition(".")[2]
            lists = re.findall(r"`(?:input|self|dtype)`仅支持([^`\n]+)", section)
            if not lists or name not in PRODUCTS:
                continue
            listed = set(dtypes(lists[0]))
            for kind in KINDS:
                if listed & set(kind):
                    listed |= set(kind)
            before = found.get(name, (set(), ""))[0]
            found[name] = (listed | before, f"Ascend/pytorch {NATIVE}/{path.name}")
    return found


def series_of(text: str) -> list[str]:
    """Return the series whose terms a text names."""
    return [series for series, terms in TERMS.items() if any(term in text for term in terms)]


def custom(op_plugin: Path) -> dict[str, tuple[set[str], dict[str, dict[str, list[str]]], str]]:
    """Return the series, the dtypes by parameter and series, and the document of custom operators."""
    found = {}
    for path in sorted((op_plugin / CUSTOM).rglob("*npu_*.md")):
        text = path.read_text()
        name = path.stem.rpartition("-")[2]
        products: set[str] = {
            series for line in re.findall(r"^\|.*√.*\|", text, re.MULTILINE) for series in series_of(line)
        }
        section = re.search(r"^#+ 参数说明\n(.*?)^#+ ", text, re.MULTILINE | re.DOTALL)
        blocks: dict[str, str] = {}
        for block in re.split(r"^- +(?=\*\*|<strong>)", section[1] if section else "", flags=re.MULTILINE)[
            1:
        ]:
            match = re.match(r"\*\*(\w+)\*\*\s*[\uff08(]`?(?:Tensor|List\[Tensor\])`?[)\uff09]", block)
            if match is None:
                continue
            blocks[match[1]] = block
        if "910B" in products:
            products.add("910_93")  # a pair of dies of the same cores; old documents do not name it
        parameters = {key: by_series(block, products) for key, block in blocks.items()}
        found[name] = (products, parameters, f"Ascend/op-plugin {path.relative_to(op_plugin)}")
    return found


def by_series(block: str, products: set[str]) -> dict[str, list[str]]:
    """Return the dtypes of a parameter's description, by series; none for one it does not list."""
    shared: list[str] = []
    own: dict[str, list[str]] = {}
    for line in block.splitlines():
        for sentence in re.findall(r"数据类型(?:仅|只)?支持(.*?)(?:数据格式|shape|[。\uff1b;]|$)", line):
            named = re.match(r"\s*(?:-\s*)?(<term>.*?)[\uff1a:]", line)
            if named and "数据类型" not in named[0]:
                for series in series_of(named[1]):
                    own.setdefault(series, []).extend(dtypes(sentence))
            else:
                shared += dtypes(sentence)
            break
    if "910_93" not in own and "910B" in own:
        own["910_93"] = own["910B"]
    found = {series: own.get(series, shared) for series in products if own.get(series, shared)}
    return found | ({FILLED: ["yes"]} if "不支持空" in block else {})


def first_tensor(row: Row) -> str | None:
    """Return the parameter that a native list describes."""
    return next((name for kind, name in row.parameters if kind == "tensor"), None)


def order(names: set[str]) -> str:
    """Return dtypes in the order of their widths."""
    known = (
        "bfloat16 float16 float32 float64 uint8 int8 int16 int32 int64 bool complex64 complex128 int4 "
        "float8_e4m3fn float8_e5m2 float8_e8m0 hifloat8 uint16 uint32 uint64 complex32"
    ).split()
    return " ".join(sorted(names, key=known.index))


def documented(operator: str, lists: dict[str, tuple[set[str], str]]) -> tuple[set[str], str] | None:
    """Return the list of a native operator, of its in-place form or of the one that it implements."""
    name = operator.partition("::")[2]
    for each in (name, name.strip("_"), name.removesuffix("_out"), f"{name}_"):
        if each in lists:
            return lists[each]
    return None


def native_rows(table: list[Row], found: dict[str, set[str]], torch_npu: Path, tested: dict) -> list[str]:
    """Return the rows from the documents of native operators."""
    lists = native(torch_npu)
    lines = []
    for row in table:
        called = {name for name in found.get(row.name, set()) if "backward" not in name}
        parameter = first_tensor(row)
        listed = [documented(name, lists) for name in sorted(called)]
        if parameter is None or not listed or not all(listed):
            continue
        accepted: set[str] = set().union(*(each[0] for each in listed if each)) | tested.get(
            (row.name, parameter), set()
        )
        source = listed[0][1] if listed[0] else ""
        lines.append(f"{row.name} {parameter} | 910B 910_93 | dtypes {order(accepted)} | {source}")
    return lines


def custom_rows(table: list[Row], found: dict[str, set[str]], op_plugin: Path, tested: dict) -> list[str]:
    """Return the rows from the documents of custom operators."""
    documents = custom(op_plugin)
    lines = []
    for row in table:
        called = {name.partition("::")[2] for name in found.get(row.name, set()) if "backward" not in name}
        called -= NEWER
        pages = [documents.get(name) or documents.get(name.removesuffix("_")) for name in sorted(called)]
        if not pages or not all(pages):
            continue
        products = set().union(*(page[0] for page in pages if page))
        source = pages[0][2] if pages[0] else ""
        missing = [
            series for series in TERMS if series not in products | {"950"}
        ]  # old documents do not name it
        if products and missing:
            lines.append(
                f"{row.name} * | {' '.join(missing)} | products {' '.join(sorted(products))} | {source}"
            )
        for kind, parameter in row.parameters:
            if kind not in ("tensor", "tensors") or (row.name, parameter) in BY_HAND:
                continue
            described = [page[1].get(parameter, {}) for page in pages if page]
            grouped: dict[str, list[str]] = defaultdict(list)
            for series in sorted(products & {"910", "310P", "910B", "910_93"}):
                accepted: set[str] = set()
                for page in described:
                    accepted |= set(page.get(series, ()))
                if not all(page.get(series) for page in described):
                    continue
                grouped[order(accepted | tested.get((row.name, parameter), set()))].append(series)
            if described and all(page.get(FILLED) for page in described):
                members = [series for series in ("910", "310P", "910B", "910_93") if series in products] or [
                    "950"
                ]
                lines.append(f"{row.name} {parameter} | {' '.join(members)} | filled | {source}")
            for accepted_text, members in grouped.items():
                lines.append(
                    f"{row.name} {parameter} | {' '.join(members)} | dtypes {accepted_text} | {source}"
                )
    return lines


def main() -> None:
    op_plugin, torch_npu = map(Path, sys.argv[1:3])
    tested: dict[tuple[str, str], set[str]] = defaultdict(set)
    for line in Path(sys.argv[3]).read_text().splitlines() if len(sys.argv) > 3 else []:
        function, parameter, dtype = line.split()
        tested[function, parameter].add(dtype)
    found, table = call_sites(op_plugin), rows()
    print(
        "\n".join(
            sorted(
                {*native_rows(table, found, torch_npu, tested), *custom_rows(table, found, op_plugin, tested)}
            )
        )
    )


if __name__ == "__main__":
    main()
