"""Drafts rows of csrc/opapi/functions.table: aclnn functions matched to ATen overloads.

Usage: python -m tools.ascend.draft OP_PLUGIN >rows

The rows are a proposal: each is read by a person before it enters the table, which is then edited by hand.
A row whose match is not by names alone ends in `# check`.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import torchgen
import yaml
from torchgen.gen import parse_native_yaml
from torchgen.model import Argument, FunctionSchema, NativeFunction, SchemaKind

from tools.ascend.callsites import Site, call_sites, kind_of_expression

SCHEMA_KINDS = {
    "Tensor": "tensor",
    "Tensor[]": "tensors",
    "Tensor?[]": "tensors",
    "Scalar": "scalar",
    "Scalar[]": "scalars",
    "int": "int",
    "SymInt": "int",
    "bool": "bool",
    "float": "double",
    "str": "string",
    "ScalarType": "dtype",
}
# Kinds that an argument of an ATen schema may be given as.
ACCEPTS = {
    "double": {"double", "float", "scalar"},
    "int": {"int", "int32", "int8", "scalar"},
    "bool": {"bool"},
    "dtype": {"dtype"},
}
RENAMED = dict.fromkeys(("result", "output", "y", "grad_input", "out0"), "out")
AFFIXES = re.compile(r"(_opapi|_op_api|_npu|_nocheck|_no_check|_out|_symint|_common|_impl|_)+$")
VARIANT = re.compile(r"(Scalar|Tensor|Dim|V\d|List|s)$")


def schema_kind(argument: Argument) -> str:
    """Return the kind of an ATen argument."""
    text = str(argument.type).rstrip("?")
    if (fixed := re.fullmatch(r"(\w+)\[\d*\]", text)) and fixed[1] in ("int", "SymInt", "float", "bool"):
        return {"float": "floats", "bool": "bools"}.get(fixed[1], "ints")
    return SCHEMA_KINDS.get(text, text)


def yaml_sites(op_plugin: Path) -> Iterator[Site]:
    """Yield the calls that op-plugin generates from op_plugin_functions.yaml."""
    data = yaml.safe_load((op_plugin / "op_plugin/config/op_plugin_functions.yaml").read_text())
    for entry in (entry for part in ("official", "custom", "autograd") for entry in data[part] or []):
        generated = entry.get("gen_opapi")
        if not isinstance(generated, dict) or "exec" not in generated:
            continue
        schema = FunctionSchema.parse(entry["func"])
        arguments = [(argument.name, schema_kind(argument)) for argument in schema.arguments.flat_all]
        kinds = dict(arguments)
        inplace = schema.kind() == SchemaKind.inplace
        if inplace and not generated["exec"].startswith("aclnnInplace") and "," not in generated["exec"]:
            continue  # goes through the out variant
        results = [key for key, value in generated.items() if isinstance(value, dict) and "size" in value]
        results = [key for key in results if key not in kinds and not inplace]
        kinds.update(dict.fromkeys(results, "tensor"))
        for name, value in generated.get("new_params", {}).items():
            kinds[name] = kind_of_expression(f"x_{name}", f"auto x_{name} = {value};")
        called, *given = [part.strip() for part in generated["exec"].split(",")]
        given = given or [*(name for name, _ in arguments), *results]
        yield Site(
            called, str(schema.name), tuple(arguments), tuple((name, kinds.get(name, "?")) for name in given)
        )


def snake(name: str) -> str:
    """Return the snake case of a camel case name."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def base_names(name: str, sites: Iterable[Site]) -> list[str]:
    """Return the names of ATen operators that a function may mean, the likeliest first."""
    plain = name.removeprefix("aclnn").removeprefix("Inplace")
    bases = []
    while True:
        bases.append(snake(plain))
        shorter = VARIANT.sub("", plain)
        if shorter == plain:
            break
        plain = shorter
    for site in sites:
        base = site.function.split(".")[0]
        bases += [base.rstrip("_"), AFFIXES.sub("", base)]
    folded = [
        base
        for one in bases
        for base in (one, one.replace("foreach", "_foreach"), f"_{one}", f"linalg_{one}")
    ]
    return list(dict.fromkeys(folded))


def assign(function: NativeFunction, parameters: list[tuple[str, str]]) -> tuple[int, list[str]] | None:
    """Give each argument of an overload one of the parameters; return a score and the arguments' texts."""
    free = list(parameters)
    texts: dict[str, str] = {}
    score = 0
    arguments = list(function.func.arguments.flat_all)
    for argument in arguments:
        kinds = ACCEPTS.get(schema_kind(argument), {schema_kind(argument)})
        for parameter in free:
            same = parameter[0] == argument.name or RENAMED.get(parameter[0]) == RENAMED.get(
                argument.name, argument.name
            )
            if same and parameter[1] in kinds:
                texts[argument.name] = parameter[0]
                free.remove(parameter)
                score += 3
                break
    for argument in arguments:
        if argument.name in texts or schema_kind(argument) == "Generator":
            continue
        kinds = ACCEPTS.get(schema_kind(argument), {schema_kind(argument)})
        found = next((parameter for parameter in free if parameter[1] in kinds), None)
        if found:
            texts[argument.name] = found[0]
            free.remove(found)
            score += 1
        elif argument.default is None and not str(argument.type).endswith("?"):
            return None
    score -= 4 * sum(kind != "int8" for _, kind in free)
    positional = True
    call = []
    for argument in arguments:
        if argument.name in texts:
            call.append(texts[argument.name] if positional else f"{argument.name}={texts[argument.name]}")
        else:
            positional = False
    return score, call


def typed(sites: list[Site]) -> Site:
    """Return the best typed call, with the kinds that other calls of the same length know."""
    length = max((len(site.arguments) for site in sites), key=[len(site.arguments) for site in sites].count)
    same = [site for site in sites if len(site.arguments) == length]
    best = min(
        same, key=lambda site: sum(kind == "?" or not name.isidentifier() for name, kind in site.arguments)
    )
    kinds = []
    for i, (name, kind) in enumerate(best.arguments):
        votes = [site.arguments[i][1] for site in same if site.arguments[i][1] != "?"]
        kinds.append((name, max(votes, key=votes.count) if votes else kind))
    return Site(best.name, best.function, best.parameters, tuple(kinds))


def named(arguments: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    """Return the parameters with names that are identifiers and differ."""
    result: list[tuple[str, str]] = []
    for i, (name, kind) in enumerate(arguments):
        plain = re.sub(r"_(cp|opt|value|real|ptr|wrapper|char|copy|input)$", "", name)
        plain = plain if plain.isidentifier() and plain not in ("lambda", "nullptr") else f"p{i}"
        taken = {other for other, _ in result}
        result.append((plain if plain not in taken else f"{plain}_{i}", kind))
    return result


def draft(name: str, sites: list[Site], operators: dict[str, list[NativeFunction]]) -> str:
    """Return the row of one function."""
    site = typed(sites)
    parameters = named(site.arguments)
    inplace = name.startswith("aclnnInplace") or (name.startswith("aclnnForeach") and name.endswith("_"))
    best: tuple[float, str, list[str], set[str]] | None = None
    for order, base in enumerate(base_names(name, sites)):
        for function in operators.get(base, []) + operators.get(base + "_", []):
            written = {
                a.name for a in function.func.arguments.flat_all if a.annotation and a.annotation.is_write
            }
            if not written or (inplace and function.func.kind().name != "inplace"):
                continue
            match = assign(function, parameters)
            if match and (best is None or match[0] - order / 4 > best[0]):
                best = (match[0] - order / 4, str(function.func.name), match[1], written)
    head = ", ".join(f"{kind} {name}" for name, kind in parameters)
    if best is None:
        return f"{name}({head})  # {site.function}"
    sure = best[0] >= 3 * len(best[2]) - 1
    return f"{name}({head}) = {best[1]}({', '.join(best[2])})" + (
        "" if sure else f"  # check {site.function}"
    )


def main() -> None:
    """Print the rows of all functions."""
    op_plugin = Path(sys.argv[1])
    folder = Path(torchgen.__file__).parent / "packaged/ATen/native"
    native = parse_native_yaml(
        str(folder / "native_functions.yaml"), str(folder / "tags.yaml")
    ).native_functions
    operators: dict[str, list[NativeFunction]] = defaultdict(list)
    for function in native:
        operators[str(function.func.name.name)].append(function)
    calls: dict[str, list[Site]] = defaultdict(list)
    for site in [*yaml_sites(op_plugin), *call_sites(op_plugin)]:
        calls[site.name].append(site)
    for name in sorted(calls):
        print(draft(name, calls[name], operators))


if __name__ == "__main__":
    main()
