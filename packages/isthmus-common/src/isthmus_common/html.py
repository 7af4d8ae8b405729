"""HTML pages from Jinja templates. A page is one file that loads nothing."""

from functools import cache
from importlib.resources import files
from typing import Any

import jinja2


def render(template: str, **values: Any) -> str:
    """Render a template; values are escaped.

    Args:
        template: package and path within it, such as ``"isthmus_diagnostics/profile/report.html.j2"``. It extends
            ``isthmus_common/page.html.j2``.
        values: variables of the template; an undefined variable is an error.
    """
    return _environment().get_template(template).render(values)


def _text(template: str) -> str:
    package, _, path = template.partition("/")
    return files(package).joinpath(path).read_text(encoding="utf-8")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_text),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment
