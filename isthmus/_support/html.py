"""HTML pages from Jinja templates. A page is one file that loads nothing."""

from functools import cache
from pathlib import Path
from typing import Any

import jinja2

_PACKAGE = Path(__file__).parents[1]


def render(template: str, **values: Any) -> str:
    """Render a template; values are escaped.

    Args:
        template: path below the package, such as ``"profile/report.html.j2"``. It extends
            ``_support/page.html.j2``.
        values: variables of the template; an undefined variable is an error.
    """
    return _environment().get_template(template).render(values)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_PACKAGE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment
