"""Results as pictures: one figure for each mode, as PNG files or inside one HTML page."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tamis.bench.results import Result, Run, cell_of
from tamis.bench.tables import MAIN_SERIES, cpu_us, footer, is_ok, tables, workload_label
from tamis.errors import UnavailableError

PLOTTED = ("latency", "throughput", "build", "encode", "parse")
TITLES = {
    "latency": "Single events: CPU time per event",
    "throughput": "Batches of events: CPU time per event",
    "build": "Deployment: CPU time per subscription",
    "encode": "Encoders: CPU time per event",
    "parse": "Parser: CPU time per predicate",
}
# Okabe and Ito's colours, which colour-blind readers can tell apart.
_HATCHES = ("", "//", "..")  # of the second and third round of colours
_MARKERS = ("o", "^", "s")
MAX_GROUPS = 8  # workloads beside one another as bars; more are points
_COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999")


def write_png(run: Run, path: str | Path) -> list[Path]:
    """Writes one picture for each mode: to `path`, or to name-mode.png if there are several."""
    path = Path(path)
    drawn = _figures(run)
    written = []
    for mode, picture in drawn.items():
        target = path if len(drawn) == 1 else path.with_stem(f"{path.stem}-{mode}")
        target.write_bytes(picture)
        written.append(target)
    return written


def write_html(run: Run, path: str | Path) -> list[Path]:
    """Writes one page with the pictures and the tables, which needs no other file."""
    pictures = _figures(run)
    title = f"Tamis benchmark {run.about['name']}"
    parts = [f"<h1>{html.escape(title)}</h1>"]
    for table in tables(run):
        parts.append(f"<h2>{html.escape(table.title)}</h2>")
        if table.mode in pictures:
            data = base64.b64encode(pictures[table.mode]).decode()
            alt = html.escape(TITLES[table.mode])
            parts.append(f'<img alt="{alt}" src="data:image/png;base64,{data}">')
        head = "".join(f"<th>{html.escape(each)}</th>" for each in table.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(each)}</td>" for each in row) + "</tr>"
            for row in table.rows
        )
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
        parts += [f"<p>{html.escape(each)}</p>" for each in table.footnotes]
    parts.append(f"<footer><pre>{html.escape(footer(run))}</pre></footer>")
    style = (
        "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:75em;padding:0 1em}"
        "img{max-width:100%}table{border-collapse:collapse;display:block;overflow-x:auto}"
        "td,th{padding:.2em .7em;text-align:right;border-bottom:1px solid #ddd;white-space:nowrap}"
        "td:nth-child(-n+2),th:nth-child(-n+2){text-align:left}pre{white-space:pre-wrap}"
    )
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{style}</style><body>{''.join(parts)}</body></html>\n"
    )
    Path(path).write_text(page, encoding="utf-8")
    return [Path(path)]


def write_lines(
    lines: Mapping[str, Sequence[tuple[float, float]]], path: Path, x: str, y: str, run: Run
) -> None:
    """Writes one picture of lines through points, both axes logarithmic."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UnavailableError('plots need matplotlib: pip install "tamis[bench]"') from error
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for place, (name, points) in enumerate(lines.items()):
        axes.plot(
            [at for at, _ in points],
            [value for _, value in points],
            marker=_MARKERS[place % len(_MARKERS)],
            color=_COLORS[place % len(_COLORS)],
            label=name,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    _sign(figure, run)
    figure.savefig(path, dpi=150)


def _figures(run: Run) -> dict[str, bytes]:
    """A PNG for each mode that has numbers."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UnavailableError('plots need matplotlib: pip install "tamis[bench]"') from error
    drawn = {}
    for mode in PLOTTED:
        good = [each for each in run.cells if each["cell"]["mode"] == mode and is_ok(each)]
        if not good:
            continue
        if len({workload_label(each) for each in good}) > MAX_GROUPS and mode in MAIN_SERIES:
            figure = Figure(layout="constrained")
            FigureCanvasAgg(figure)
            _draw_points(figure, mode, good, run)
        else:
            width = max(8.0, min(24.0, 4.0 + 0.5 * sum(len(each["series"]) for each in good)))
            figure = Figure(figsize=(width, 5.5), layout="constrained")
            FigureCanvasAgg(figure)
            _draw(figure, mode, good, run)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=150)
        drawn[mode] = buffer.getvalue()
    return drawn


def _draw(figure: Any, mode: str, good: list[Result], run: Run) -> None:
    """Groups of bars, one group for each workload; the whisker reaches from minimum to maximum."""
    values: dict[tuple[str, str], tuple[float, float, float]] = {}
    for result in good:
        cell = cell_of(result)
        for series in [MAIN_SERIES[mode]] if mode in MAIN_SERIES else result["series"]:
            name = cell.engine_label if mode in MAIN_SERIES else series
            low, middle, high = (cpu_us(result, series, each) for each in ("min", "median", "max"))
            values[workload_label(result), name] = (low, middle, high)
    groups = list(dict.fromkeys(group for group, _ in values))
    names = list(dict.fromkeys(name for _, name in values))
    axes = figure.subplots()
    width = 0.8 / len(names)
    for place, name in enumerate(names):
        mine = [
            (at, values[group, name]) for at, group in enumerate(groups) if (group, name) in values
        ]
        lows = [low for _, (low, _, _) in mine]
        highs = [high - low for _, (low, _, high) in mine]
        bars = axes.bar(
            [at + (place - (len(names) - 1) / 2) * width for at, _ in mine],
            lows,
            width * 0.92,
            yerr=[[0.0] * len(mine), highs],
            capsize=3,
            label=name,
            color=_COLORS[place % len(_COLORS)],
            hatch=_HATCHES[place // len(_COLORS) % len(_HATCHES)],
            ecolor="#444444",
        )
        # Many bars are narrow: numbers beside one another would be one smear.
        many = {"rotation": 90, "fontsize": 6} if len(values) > 12 else {"fontsize": 8}
        axes.bar_label(bars, labels=[f"{low:.3g}" for low in lows], padding=2, **many)
    positive = [low for low, _, _ in values.values() if low > 0]
    if positive and max(positive) > 20 * min(positive):
        axes.set_yscale("log")
    labels = [group.replace(" ", "\n") if mode in MAIN_SERIES else group for group in groups]
    axes.set_xticks(range(len(groups)), labels, fontsize=9)
    axes.set_ylabel("CPU µs, minimum; whisker: maximum")
    axes.set_title(TITLES[mode])
    axes.margins(y=0.15)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    if len(names) > 1:
        axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1))
    else:
        axes.set_title(f"{TITLES[mode]} ({names[0]})")
    _sign(figure, run)


def _draw_points(figure: Any, mode: str, good: list[Result], run: Run) -> None:
    """A panel for each family of workloads, a column of points for each workload."""
    families: dict[str, list[str]] = {}
    for result in good:
        labels = families.setdefault(result["cell"]["workload"].split("-")[0], [])
        if workload_label(result) not in labels:
            labels.append(workload_label(result))
    names = list(dict.fromkeys(cell_of(each).engine_label for each in good))
    widest = max(map(len, families.values()))
    figure.set_size_inches(max(8.0, 3.0 + 0.2 * widest), 4.5 * len(families) + 0.5)
    panels = figure.subplots(len(families), 1, squeeze=False)
    for axes, (family, labels) in zip(panels[:, 0], families.items(), strict=True):
        for place, name in enumerate(names):
            mine = {
                workload_label(each): cpu_us(each, MAIN_SERIES[mode])
                for each in good
                if cell_of(each).engine_label == name and workload_label(each) in labels
            }
            axes.plot(
                [labels.index(label) for label in mine],
                list(mine.values()),
                _MARKERS[place // len(_COLORS) % len(_MARKERS)],
                label=name,
                color=_COLORS[place % len(_COLORS)],
                markersize=5,
            )
        axes.set_yscale("log")
        axes.set_xticks(range(len(labels)), labels, rotation=90, fontsize=6)
        axes.set_ylabel("CPU µs, minimum", fontsize=8)
        axes.set_title(family, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
        axes.set_axisbelow(True)
    panels[0, 0].legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    figure.suptitle(TITLES[mode])
    _sign(figure, run)


def _sign(figure: Any, run: Run) -> None:
    """Machine, date and command below."""
    lines = [line if len(line) <= 150 else line[:149] + "…" for line in footer(run).splitlines()]
    # Command lines may hold dollar signs, which are no formulas.
    figure.supxlabel("\n".join(lines).replace("$", r"\$"), fontsize=7, color="#555555")
