#!/usr/bin/env python3
"""Runs a figure's experiment on the simulated machine: a table, result.csv and a plot in the experiment's folder.

Usage: experiments/run.py NAME [--full] [--jobs N] [--binary TANDEM] [--keep FOLDER] [--band SHARE] [--line LINE]... [--png]

experiments/NAME/experiment.json says what is run: `scenario` holds options of `tandem simulate`, `streams` its loads; words in braces are the
values of a point, +, -, * and // of them included. A point is one value of `x` and one of `lines` in one of the `panels`; both lines and panels add
options to `scenario`, panels also values. `quick` (the default) and `full` give values, too. An option may be a list, as `engine` is. No packages
needed.
"""
import argparse
import ast
import concurrent.futures
import csv
import json
import math
import operator
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
COLUMNS = ["panel", "line", "x", "attainment", "attainment_of_answered", "chat_ttft_p50_ms", "chat_ttft_p99_ms", "chat_tpot_p50_ms", "chat_tpot_p99_ms",
           "chat_output_per_s", "bulk_output_per_s", "bulk_prompt_per_s", "bulk_completed", "compute_busy", "prompt_tokens_per_s", "hops",
           "host_tokens_per_step", "late_decode_per_s", "prediction_error", "profile_mean", "profile_p90", "seconds"]
PLOTS = [["attainment", "chat within its targets", True], ["bulk_output_per_s", "best-effort output tokens/s", False]]
COLOURS = ["#4c78a8", "#e45756", "#54a24b", "#f58518", "#b279a2", "#72b7b2"]
# Columns that a band of the host's bandwidth is known of, and their names in result.json.
BANDED = {"bulk_output_per_s": "bulk.output_tokens_per_s", "chat_output_per_s": "chat.output_tokens_per_s"}
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}


def value_of(expression, values):
    """A name of `values`, or a sum or product of such names and numbers."""
    def walk(node):
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](walk(node.left), walk(node.right))
        if isinstance(node, ast.Name) and node.id in values:
            return values[node.id]
        if isinstance(node, ast.Constant):
            return node.value
        sys.exit(f"run.py: '{{{expression}}}' is not made of {', '.join(values)}")
    return walk(ast.parse(expression, mode="eval").body)


def filled(text, values):
    return re.sub(r"\{([^}]*)\}", lambda found: str(value_of(found.group(1), values)), text)


def points_of(experiment, size):
    for panel, own in experiment["panels"].items():
        for line, options in experiment["lines"].items():
            for x in own.get("x", experiment["x"].get("values", [])):
                values = {**experiment[size], **own.get("values", {}), experiment["x"]["name"]: x}
                yield {"panel": panel, "line": line, "x": x, "values": values, "scenario": {**experiment["scenario"], **own["scenario"], **options}}


def scenario_text(experiment, point, band):
    lines = [f"host-band: {band}"] if band and "host-kv" in point["scenario"] else []
    for key, value in point["scenario"].items():
        if isinstance(value, list):
            lines += [f"{key}:"] + [f"  - {json.dumps(filled(item, point['values']))}" for item in value]
            continue
        value = filled(str(value), point["values"])
        if key == "shape" and (HERE / value).is_dir():
            value = str(HERE / value)
        lines.append(f"{key}: {json.dumps(value)}")
    return "\n".join(lines + ["stream:"] + [f"  - {json.dumps(filled(stream, point['values']))}" for stream in experiment["streams"]]) + "\n"


def machine_of(result):
    """What the machine did; with several engines, what all did together. `compute_busy` and the accuracy of the profile are the first engine's."""
    if "engines" not in result["tandem"]:
        return result["tandem"]["machine"]
    machines = [engine["machine"] for engine in result["tandem"]["engines"]]
    kinds = {f"{number} {name}": kind for number, machine in enumerate(machines) for name, kind in machine["steps_by_kind"].items()}
    return {**machines[0], "hops": sum(machine["hops"] for machine in machines), "steps": sum(machine["steps"] for machine in machines), "steps_by_kind": kinds}


def late_decodes(folder, begin, end, layers):
    """Tokens that were decoded in each slice of time on any engine and tier, added over the engines."""
    sums = []
    for path in sorted(folder.glob("machine*.csv")):
        with open(path, encoding="utf-8") as timeline:
            slices = [{key: float(cell) for key, cell in one.items()} for one in csv.DictReader(timeline)]
        late = [one["resident_decode_tokens_per_s"] + one["hops_per_s"] / layers for one in slices if begin <= one["begin_s"] < end]
        sums.append(sum(late) / max(len(late), 1))
    return sum(sums)


def run_point(flags, experiment, point, folder):
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    file, text = folder / "scenario.yaml", scenario_text(experiment, point, flags.band)
    if not (file.exists() and file.read_text() == text and (folder / "result.json").exists()):
        file.write_text(text)
        done = subprocess.run([flags.binary, "simulate", "--config", file, "-o", folder], capture_output=True, text=True, check=False)
        if done.returncode:
            return None, None, f"{point['panel']}, {point['line']}, {point['x']}: {done.stderr.strip() or done.stdout.strip()}"
    result = json.loads((folder / "result.json").read_text())
    chat, bulk = (next((one for one in result["tandem"]["classes"] if one["name"] == name), None) for name in ("chat", "bulk"))
    good = chat.get("good", chat["completed"])  # of a class without targets every answer is
    # Not a number if nothing was answered.
    ttft, tpot = ({key: math.nan if ms is None else ms for key, ms in chat[times]["percentiles"].items()} for times in ("ttft_ms", "tpot_ms"))
    machine, seconds = machine_of(result), result["duration"]
    layers = json.loads((HERE / point["scenario"]["shape"] / "config.json").read_text())["num_hidden_layers"]
    # Every offloaded token hops once in each layer.
    offloaded = machine["hops"] / layers / machine["steps"] if machine["steps"] else 0
    # Of both tiers and classes, in the second half of the arrivals: memories have filled by then.
    half = point["values"]["seconds"] / 2
    late = late_decodes(folder, half, 2 * half, layers)
    kinds = machine["steps_by_kind"].values()
    predicted = sum(kind["time_s"] for kind in kinds if kind["predicted_s"])
    error = sum(kind["prediction_error_s"] for kind in kinds) / predicted if predicted else 0
    model = machine.get("profile", {}).get("accuracy", {}).get(point["scenario"].get("time-model", "modular"), {"mean": 0, "p90": 0})
    outer = result["tandem"].get("host_band", {"low": {}, "high": {}})
    band = {column: (outer["low"].get(name), outer["high"].get(name)) for column, name in BANDED.items() if name in outer["low"]}
    return [point["panel"], point["line"], point["x"], good / max(chat["planned"], 1), good / max(chat["completed"], 1),
            ttft["50"], ttft["99"], tpot["50"], tpot["99"], chat["output_tokens"] / seconds,
            bulk["output_tokens"] / seconds if bulk else 0, bulk["input_tokens"] / seconds if bulk else 0, bulk["completed"] if bulk else 0,
            machine["compute_busy"], sum(kind["prompt_tokens"] for kind in kinds) / seconds, machine["hops"], offloaded, late, error, model["mean"],
            model["p90"], time.monotonic() - began], band, None


def kept_rows(file, lines):
    """The rows of other lines that an earlier run left."""
    if not file.exists():
        return []
    def number(cell):
        return int(cell) if re.fullmatch(r"-?\d+", cell) else float(cell)
    with open(file, encoding="utf-8", newline="") as table:
        return [row[:2] + [number(cell) for cell in row[2:]] + [0.0] for row in list(csv.reader(table))[1:] if row[1] not in lines]


def round_over(value):
    """The least of 1, 2, 2.4, 4, 6, 8 times a power of ten that is not below."""
    power = 10 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10) if step * power >= value)


def plot(experiment, rows, bands, column, label, share):
    """SVG: a panel beside the other, lines over x, each with what it is at other bandwidths of the host."""
    width, height, left, top = 380, 280, 60, 60
    whole = max(width * len(experiment["panels"]) + 20, left + 150 * len(experiment["lines"]), 8 * len(experiment["title"]))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="{height + 75}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>', f'<text x="10" y="16" font-weight="bold">{experiment["title"]}</text>',
           f'<text x="10" y="34">{label}</text>']
    rows = [row for row in rows if not math.isnan(row[COLUMNS.index(column)])]
    for number, panel in enumerate(experiment["panels"]):
        mine = [row for row in rows if row[0] == panel]
        xs = sorted({row[2] for row in mine})
        most = 1.0 if share else round_over(max([row[COLUMNS.index(column)] for row in mine] + [max(band[column]) for key, band in bands.items() if key[0] == panel and column in band] + [1e-9]))
        x0, plot_width, plot_height = number * width + left, width - left - 20, height - top - 20

        def at(x, y):
            along = (x - xs[0]) / (xs[-1] - xs[0]) if len(xs) > 1 else 0.5
            return x0 + along * plot_width, top + 10 + (1 - y / most) * plot_height
        out.append(f'<text x="{x0}" y="{top}">{panel}</text>')
        for part in (0, 0.25, 0.5, 0.75, 1):
            y = at(xs[0], part * most)[1]
            out.append(f'<line x1="{x0}" x2="{x0 + plot_width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
            out.append(f'<text x="{x0 - 6}" y="{y + 4:.1f}" text-anchor="end">{f"{part * 100:.0f} %" if share else f"{part * most:g}"}</text>')
        free_from = 0.0  # labels that would touch the last one are left out
        for x in xs:
            middle, half = at(x, 0)[0], 4 * len(f"{x:g}")
            if middle - half >= free_from:
                out.append(f'<text x="{middle:.1f}" y="{top + plot_height + 28}" text-anchor="middle">{x:g}</text>')
                free_from = middle + half + 4
        out.append(f'<text x="{x0 + plot_width / 2}" y="{top + plot_height + 44}" text-anchor="middle">{experiment["x"]["label"]}</text>')
        for index, line in enumerate(experiment["lines"]):
            on_line = sorted((row for row in mine if row[1] == line), key=lambda row: row[2])
            marks = [at(row[2], row[COLUMNS.index(column)]) for row in on_line]
            colour = COLOURS[index % len(COLOURS)]
            spans = [(row[2], row[COLUMNS.index(column)], bands.get(tuple(row[:3]), {}).get(column)) for row in on_line]
            if spans and all(span for _, _, span in spans):
                edge = [at(x, max(value, *span)) for x, value, span in spans] + [at(x, min(value, *span)) for x, value, span in reversed(spans)]
                out.append(f'<polygon fill="{colour}" fill-opacity="0.15" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in edge)}"/>')
            # Lines that coincide lie on each other, the first one the widest.
            out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="{2 + 2 * (len(experiment["lines"]) - 1 - index)}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in marks)}"/>')
            out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in marks]
    for index, line in enumerate(experiment["lines"]):
        out.append(f'<text x="{left + 150 * index}" y="{height + 60}" fill="{COLOURS[index % len(COLOURS)]}">{line}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def show(experiment, rows):
    print(f"{'panel':24} {'line':24} {experiment['x']['name']:>8} {'attained':>9} {'answered':>9} {'TTFT P99 ms':>12} {'TPOT P99 ms':>12} {'chat out/s':>11} "
          f"{'bulk out/s':>11} {'prompts/s':>10} {'host tok/step':>14} {'late tok/s':>11} {'error':>7}")
    for row in rows:
        one = dict(zip(COLUMNS, row))
        print(f"{one['panel']:24} {one['line']:24} {one['x']:>8g} {one['attainment'] * 100:>7.1f} % {one['attainment_of_answered'] * 100:>7.1f} % "
              f"{one['chat_ttft_p99_ms']:>12.0f} {one['chat_tpot_p99_ms']:>12.1f} {one['chat_output_per_s']:>11.1f} {one['bulk_output_per_s']:>11.1f} "
              f"{one['prompt_tokens_per_s']:>10.0f} {one['host_tokens_per_step']:>14.1f} {one['late_decode_per_s']:>11.0f} {one['prediction_error'] * 100:>5.1f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("name", choices=sorted(path.parent.name for path in HERE.glob("*/experiment.json")))
    parser.add_argument("--full", action="store_true", help="windows as long as published")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--band", type=float, default=0, help="also with this share less and more bandwidth of the host, e.g. 0.2: plots show the band; takes three times the time")
    parser.add_argument("--line", action="append", help="run only this line (may be given several times), and keep the rows of the others in result.csv")
    parser.add_argument("--png", action="store_true", help="make PNG files of the plots, too (rsvg-convert)")
    parser.add_argument("--binary", default=str(HERE.parent / "build/release/tandem"))
    parser.add_argument("--keep", type=pathlib.Path, help="folder for scenario, result and report of every point; points that it has already are not run again")
    flags = parser.parse_args()
    if flags.png and not shutil.which("rsvg-convert"):
        sys.exit("run.py: --png needs rsvg-convert; install the package librsvg2-bin")
    experiment = json.loads((HERE / flags.name / "experiment.json").read_text())
    points = list(points_of(experiment, "full" if flags.full else "quick"))
    if flags.line:
        if not set(flags.line) <= set(experiment["lines"]) or flags.band:
            sys.exit("run.py: --line is one of " + ", ".join(experiment["lines"]) + ", and does not go with --band")
        points = [point for point in points if point["line"] in flags.line]
    rows, bands, failures = [], {}, []
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        folder = flags.keep or pathlib.Path(scratch)
        work = [pool.submit(run_point, flags, experiment, point, folder / f"{number:03}") for number, point in enumerate(points)]
        for done, future in enumerate(concurrent.futures.as_completed(work), 1):
            future.result()
            print(f"\r{done} of {len(points)} points", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        for future in work:
            row, band, failure = future.result()
            (failures if row is None else rows).append(failure if row is None else row)
            if row is not None and band:
                bands[tuple(row[:3])] = band
    if failures:
        sys.exit("\n".join(failures))
    show(experiment, rows)
    if flags.line:
        rows += kept_rows(HERE / flags.name / "result.csv", flags.line)
        order = {key: [*experiment[key]] for key in ("panels", "lines")}
        rows.sort(key=lambda row: (order["panels"].index(row[0]), order["lines"].index(row[1]), row[2]))
    with open(HERE / flags.name / "result.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS[:-1])
        writer.writerows([f"{value:.4g}" if isinstance(value, float) else value for value in row[:-1]] for row in rows)
    for column, label, share in experiment.get("plots", PLOTS):
        svg = HERE / flags.name / f"{column}.svg"
        svg.write_text(plot(experiment, rows, bands, column, label, share))
        if flags.png:
            subprocess.run(["rsvg-convert", "--zoom", "2", "--output", svg.with_suffix(".png"), svg], check=True)
    print(f"{sum(row[-1] for row in rows):.0f} s of computing; wrote result.csv and plots in {HERE / flags.name}")


if __name__ == "__main__":
    main()
