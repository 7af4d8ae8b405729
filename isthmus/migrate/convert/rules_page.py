"""The page of the rules, made from the rules themselves: ``isthmus migrate rules --markdown``."""

from __future__ import annotations

from collections.abc import Iterable

from isthmus.migrate.convert.rule import Rule
from isthmus.migrate.findings import Severity

_HEAD = """# Rules of `isthmus migrate convert`

Made by `isthmus migrate rules --markdown > docs/migrate-rules.md`. `--select` and `--ignore` of convert take codes,
names, or the start of codes (`IM1`). *review*: a person should look at the result. A package adds rules by entry
points of the group `isthmus.migrate.rules`, each a subclass of `isthmus.migrate.convert.rule.Rule`.
"""


def page(rules: Iterable[type[Rule]]) -> str:
    """The page, in Markdown."""
    return _HEAD + "".join(f"\n{_section(rule)}" for rule in sorted(rules, key=lambda rule: rule.code))


def as_dict(rule: type[Rule]) -> dict[str, str]:
    """What a rule says of itself."""
    return {
        "code": rule.code,
        "name": rule.name,
        "severity": rule.severity.value,
        "option": rule.option,
        "summary": rule.summary,
        "before": rule.before,
        "after": rule.after,
    }


def _section(rule: type[Rule]) -> str:
    marks = ["review"] if rule.severity is Severity.REVIEW else []
    marks += [f"only with `--{rule.option}`"] if rule.option else []
    said = f" ({', '.join(marks)})" if marks else ""
    example = f"```python\n{rule.before}\n# becomes\n{rule.after or '# (nothing)'}\n```"
    return f"## {rule.code} {rule.name}{said}\n\n{rule.summary}\n\n{example}\n"
