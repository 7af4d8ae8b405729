"""Class patterns of ``match`` statements: ``case torch.device(type="cuda")`` matches the accelerator's devices.

The interpreter reads the attributes of a pattern itself, so no call can be put around them.
"""

import ast


def rewrite(case: ast.match_case) -> None:
    """Let patterns of devices match the accelerator for ``"cuda"``, and captures of the type read ``"cuda"``."""
    captured: list[str] = []
    for pattern in ast.walk(case.pattern):
        if isinstance(pattern, ast.MatchClass) and _is_device(pattern.cls):
            for index, name in enumerate(pattern.kwd_attrs):
                if name == "type":
                    pattern.kwd_patterns[index] = _with_accelerator(pattern.kwd_patterns[index], captured)
    for name in captured:
        case.guard = _guard(name, case)


def _is_device(kind: ast.expr) -> bool:
    return (kind.attr if isinstance(kind, ast.Attribute) else getattr(kind, "id", "")) == "device"


def _with_accelerator(pattern: ast.pattern, captured: list[str]) -> ast.pattern:
    """``"cuda" | <type of the accelerator>`` for each ``"cuda"`` of the pattern; notes names that it binds."""
    if isinstance(pattern, ast.MatchOr):
        pattern.patterns = [_with_accelerator(each, captured) for each in pattern.patterns]
    elif isinstance(pattern, ast.MatchAs):
        if pattern.pattern is not None:
            pattern.pattern = _with_accelerator(pattern.pattern, captured)
        if pattern.name is not None:
            captured.append(pattern.name)
    elif isinstance(pattern, ast.MatchValue) and getattr(pattern.value, "value", None) == "cuda":
        ours = ast.Attribute(ast.Name("__isthmus_pattern__", ast.Load()), "type", ast.Load())
        return ast.copy_location(ast.MatchOr([pattern, ast.MatchValue(ours)]), pattern)
    return pattern


def _guard(name: str, case: ast.match_case) -> ast.expr:
    """A condition that translates a captured type before the guard of the case, which may read it."""
    read = ast.Call(ast.Name("__isthmus_type_name__", ast.Load()), [ast.Name(name, ast.Load())], [])
    bind = ast.List([ast.NamedExpr(ast.Name(name, ast.Store()), read)], ast.Load())  # true: it is not empty
    found = bind if case.guard is None else ast.BoolOp(ast.And(), [bind, case.guard])
    return ast.copy_location(found, case.pattern)
