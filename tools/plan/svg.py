"""The few elements of SVG that the picture is made of, as text."""

from __future__ import annotations

from colorsys import hls_to_rgb
from html import escape

MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
INK, PALE, PAPER = "#1f2430", "#6b7280", "#ffffff"


def number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def element(name: str, content: str = "", /, **attributes: object) -> str:
    """`font_size=9` becomes font-size="9"; numbers have at most one decimal."""
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{number(value) if isinstance(value, float) else escape(str(value))}"'
        for key, value in attributes.items()
    )
    return f"<{name}{told}>{content}</{name}>" if content else f"<{name}{told}/>"


def rect(x: float, y: float, width: float, height: float, **rest: object) -> str:
    return element("rect", x=float(x), y=float(y), width=float(width), height=float(height), **rest)


def text(x: float, y: float, words: str, size: float = 11, **rest: object) -> str:
    return element("text", escape(words), x=float(x), y=float(y), font_size=float(size), **rest)


def line(points: list[tuple[float, float]], width: float, color: str, **rest: object) -> str:
    path = "M" + " L".join(f"{number(x)} {number(y)}" for x, y in points)
    return element("path", d=path, fill="none", stroke=color, stroke_width=float(width), **rest)


def color(hue: float, lightness: float, saturation: float = 0.55) -> str:
    """Hue in degrees, the others from 0 to 1."""
    parts = hls_to_rgb(hue / 360 % 1, lightness, saturation)
    return "#" + "".join(f"{round(part * 255):02x}" for part in parts)
