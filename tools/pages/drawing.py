"""Drawings as SVG text: boxes, arrows and dots of one style, on a light and on a dark screen.

A drawing is 420 units wide, so that its text can be read on a phone, and has its own background, so that it can be
read on any page. The same calls give the same bytes.
"""

from __future__ import annotations

from html import escape

WIDTH = 420
MARGIN = 12
STYLE = """\
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "PingFang SC", "Noto Sans CJK SC", sans-serif; \
fill: #1f2328 }
.name { font-weight: 600 }
.small { font-size: 11.5px; fill: #4c555f }
.middle { text-anchor: middle }
.end { text-anchor: end }
.back { fill: #ffffff }
.box { fill: #f3f5f7; stroke: #8c959f }
.own { fill: #ddf0ff; stroke: #0969da }
.interface { fill: #daf5e0; stroke: #1a7f37 }
.open { stroke-dasharray: 5 3 }
.frame { fill: none; stroke: #8c959f }
.line { fill: none; stroke: #59636e; stroke-width: 1.3 }
.head { fill: #59636e }
.grid { stroke: #d1d9e0 }
.one { stroke: #cf222e; stroke-width: 1.3 }
.dot { fill: #0969da; fill-opacity: 0.35 }
.median { fill: #0969da }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .small { fill: #b1bac4 }
  .back { fill: #0d1117 }
  .box { fill: #1c2128; stroke: #6e7681 }
  .own { fill: #10243e; stroke: #4493f8 }
  .interface { fill: #12261e; stroke: #3fb950 }
  .frame { stroke: #6e7681 }
  .line { stroke: #9198a1 }
  .head { fill: #9198a1 }
  .grid { stroke: #30363d }
  .one { stroke: #f85149 }
  .dot { fill: #4493f8; fill-opacity: 0.45 }
  .median { fill: #79c0ff }
}"""


class Drawing:
    """An SVG picture; y grows downward."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.parts: list[str] = []

    def add(self, tag: str, classes: str, text: str | None = None, **attributes: float) -> None:
        """Add an element."""
        values = "".join(f' {name}="{round(value, 1):g}"' for name, value in attributes.items())
        end = "/>" if text is None else f">{escape(text, quote=False)}</{tag}>"
        self.parts.append(f'<{tag} class="{classes}"{values}{end}')

    def text(self, x: float, y: float, text: str, classes: str = "small") -> None:
        """Write one line of text, whose base line is at y."""
        self.add("text", classes, text, x=x, y=y)

    def box(
        self, x: float, y: float, width: float, height: float, name: str, *lines: str, kind: str = "box"
    ) -> None:
        """Draw a box with a name and smaller lines, in its middle."""
        self.add("rect", kind, x=x, y=y, width=width, height=height, rx=6)
        first = y + height / 2 + 5 - 8 * len(lines)
        self.text(x + width / 2, first, name, "name middle")
        for number, line in enumerate(lines, 1):
            self.text(x + width / 2, first + 16 * number, line, "small middle")

    def arrow(self, x: float, start: float, end: float, kind: str = "") -> None:
        """Draw an arrow down."""
        self.add("line", f"line {kind}".strip(), x1=x, y1=start, x2=x, y2=end - 6)
        self.parts.append(f'<path class="head" d="M{x - 4:g} {end - 7:g}h8l-4 7z"/>')

    def svg(self, height: float) -> str:
        """Return the picture, of this height."""
        size = f'viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>{escape(self.title, quote=False)}</title>",
            f"<style>\n{STYLE}\n</style>",
            f'<rect class="back" width="{WIDTH}" height="{height:g}" rx="8"/>',
            *self.parts,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"
