"""Plain tables with aligned columns."""

from __future__ import annotations

from collections.abc import Sequence


def table(rows: Sequence[Sequence[str]], head: Sequence[str] = (), indent: str = "  ") -> str:
    """Rows under an optional head, columns as wide as their widest cell; nothing at all without rows.

    Cells must be printable already. The last column is not padded, so no line ends in spaces.
    """
    if not rows:
        return ""
    lines = [list(head)] if head else []
    lines += [list(row) for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "".join(_line(line, widths, indent) for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int], indent: str) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return (indent + "  ".join(padded)).rstrip() + "\n"
