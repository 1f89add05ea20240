"""Panels and lines as pictures. matplotlib draws; the same rows give the same SVG, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from tests.benchmarks.pictures.figures import Lines, Mark, Panel

mpl.use("Agg")

from matplotlib import pyplot as plt

STYLE = {
    "font.size": 9, "axes.titlesize": 9, "axes.titlelocation": "left", "axes.spines.top": False,
    "axes.spines.right": False, "axes.spines.left": False, "axes.edgecolor": "#999", "axes.axisbelow": True,
    "xtick.color": "#555", "ytick.color": "#222", "ytick.major.size": 0, "svg.hashsalt": "strata",
    "svg.fonttype": "none",
}  # fmt: skip
OURS, OTHERS, LOST, WON = "#c2410c", "#475569", "#c2410c", "#15803d"
_COLOURS = (
    "#0072b2",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#8b6f00",
    "#7c3aed",
    "#475569",
    "#b45309",
    "#0f766e",
    "#be185d",
)
_WIDE = 2
"""Panels side by side."""


def panels(title: str, given: Sequence[Panel], note: str, difference: bool = False) -> Any:
    """Marks with their intervals, a line for each name. `difference`: around zero, in one order for all panels."""
    rows = max(len(panel.marks) for panel in given)
    columns = len(given) if difference else min(_WIDE, len(given))
    lines = -(-len(given) // columns)
    ends = [end for panel in given for mark in panel.marks for end in (mark.value, mark.high) if end == end]
    right = 1.04 * max([*ends, 1e-6])
    with plt.rc_context(STYLE):
        size = (2.3 + 3.1 * columns if difference else 5.2 * columns, lines * (0.9 + 0.23 * rows) + 0.7)
        figure, axes = plt.subplots(
            lines, columns, figsize=size, squeeze=False, sharey=difference, layout="constrained"
        )
        for axis in axes.flat[len(given) :]:
            axis.set_visible(False)
        for axis, panel in zip(axes.flat, given, strict=False):
            _panel(axis, panel, difference, right)
        _titles(figure, title, note)
    return figure


def lines(title: str, given: Lines, note: str) -> Any:
    """One line for each method over the places."""
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(6.8, 3.8), layout="constrained")
        at = np.arange(len(given.places))
        for place, (name, values) in enumerate(sorted(given.lines.items(), key=lambda item: -np.nanmax(item[1]))):
            ours = "learner" in name
            colour = OURS if ours else _COLOURS[place % len(_COLOURS)]
            axis.plot(
                at, values, "o-", color=colour, lw=2.2 if ours else 1.3, ms=4, label=name, zorder=3 if ours else 2
            )
        axis.set_xticks(at, given.places)
        axis.set_xlabel("times that the product was had before")
        axis.set_ylabel(given.measure)
        axis.set_ylim(bottom=0)
        axis.grid(axis="y", color="#e5e7eb", lw=0.8)
        axis.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
        _titles(figure, f"{title}, {given.title}", note)
    return figure


def save(figure: Any, file: Path) -> None:
    """Write a picture in the format of its ending, without the date."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with plt.rc_context(STYLE):  # its salt names the parts of an SVG
        figure.savefig(file, dpi=150, metadata={"Date": None} if file.suffix == ".svg" else None)
    plt.close(figure)


def _panel(axis: Any, panel: Panel, difference: bool, right: float) -> None:
    for place, mark in enumerate(panel.marks):
        colour = _colour(mark, difference)
        if mark.low == mark.low:
            axis.plot([mark.low, mark.high], [place, place], color=colour, lw=1.4, alpha=0.55, solid_capstyle="butt")
        axis.plot(mark.value, place, "o", color=colour, ms=5, mfc=colour if mark.ours else "white")
    axis.set_yticks(range(len(panel.marks)), [mark.name for mark in panel.marks])
    axis.set_ylim(len(panel.marks) - 0.4, -0.6)
    axis.grid(axis="x", color="#e5e7eb", lw=0.8)
    axis.set_xlabel(panel.measure.replace(": difference", ""), color="#555")
    if panel.title:
        axis.set_title(panel.title)
    if difference:
        axis.axvline(0, color="#555", lw=0.9)
    else:
        axis.set_xlim(0, right)


def _colour(mark: Mark, difference: bool) -> str:
    if difference:
        return LOST if mark.high < 0 else WON if mark.low > 0 else OTHERS
    return OURS if "learner" in mark.name else OTHERS


def _titles(figure: Any, title: str, note: str) -> None:
    figure.suptitle(title, x=0.01, ha="left", weight="bold", size=11)
    figure.supxlabel(note, x=0.01, ha="left", size=7.5, color="#666")
