#!/usr/bin/env python3
"""Online and offline tokens a second over time, with budgets of a step's time (HyGen, Fig. 9), on the simulated machine.

Usage: experiments/over_time.py hygen-fig9 [--traces FOLDER] [--budgets 12ms 20ms 44ms] [--binary TANDEM]

Runs the scenario without best effort, then with each budget. Writes a line for each minute to experiments/NAME/result.csv, and over-time.svg beside it.
A minute's offline tokens are the tokens of both classes less the online tokens of the run without best effort: online tokens that come later beside
offline work count as offline tokens of that minute.
"""
import argparse
import csv
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

from tolerances import value

HERE = pathlib.Path(__file__).resolve().parent
WINDOW_S = 60
COLOURS = ["#444444", "#1f77b4", "#d62728", "#2ca02c"]


def tokens_per_s(result):
    """Of each whole window."""
    timeline = result["tandem"]["timeline"]
    slices = round(WINDOW_S / timeline["slice_s"])
    chunks = timeline["token_chunks"]
    return [sum(chunks[at:at + slices]) / WINDOW_S for at in range(0, len(chunks) - slices + 1, slices)]


def simulate(flags, text, folder, *options):
    scenario = folder / "scenario.yaml"
    scenario.write_text(text)
    done = subprocess.run([flags.binary, "simulate", scenario, *options, "-o", folder / "out"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.strip())
    return json.loads((folder / "out" / "result.json").read_text())


def plot(lines):
    width, height, left, top = 760, 300, 60, 20
    most = max(max(values) for _, values in lines) * 1.05
    count = max(len(values) for _, values in lines)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/>']

    def at(minute, value):
        return left + minute / max(count - 1, 1) * (width - left - 20), height - 60 - value / most * (height - 60 - top)

    step = 200
    for value in range(0, int(most) + 1, step):
        y = at(0, value)[1]
        out.append(f'<line x1="{left}" x2="{width - 20}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/><text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{value}</text>')
    for minute in range(0, count, 5):
        out.append(f'<text x="{at(minute, 0)[0]:.1f}" y="{height - 42}" text-anchor="middle">{minute}</text>')
    out.append(f'<text x="{width / 2}" y="{height - 26}" text-anchor="middle">minutes; lines: tokens a second</text>')
    for number, (name, values) in enumerate(lines):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(minute, value) for minute, value in enumerate(values)))
        out.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[number]}" stroke-width="2"/>')
        out.append(f'<text x="{left + number * 170}" y="{height - 8}" fill="{COLOURS[number]}">{name}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--traces", default=pathlib.Path(os.environ.get("TANDEM_SHARED", "../shared")) / "traces")
    parser.add_argument("--budgets", nargs="+", default=["12ms", "20ms", "44ms"])
    parser.add_argument("--binary", default=HERE.parent / "build/release/tandem")
    flags = parser.parse_args()
    text = (HERE / flags.name / "scenario.yaml").read_text().replace("{traces}", str(pathlib.Path(flags.traces).resolve()))
    alone_text = "\n".join(line for line in text.splitlines() if "name: offline" not in line) + "\n"
    with tempfile.TemporaryDirectory() as folder:
        alone = simulate(flags, alone_text, pathlib.Path(folder))
        online = tokens_per_s(alone)
        lines = [("online, alone", online)]
        for budget in flags.budgets:
            both = simulate(flags, text, pathlib.Path(folder), "--step-budget", budget)
            offline = [all_tokens - own for all_tokens, own in zip(tokens_per_s(both), online)]
            lines.append((f"offline, {budget}", offline))
            print(f"{budget}: {statistics.mean(offline):.0f} offline tokens/s, correlation with online tokens/s {statistics.correlation(online[:len(offline)], offline):.2f}, "
                  f"{value(both, 'mean_tbt'):.1f} ms between online tokens, alone {value(alone, 'mean_tbt'):.1f}")
    with (HERE / flags.name / "result.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["minute", *(name for name, _ in lines)])
        for minute in range(min(len(values) for _, values in lines)):
            writer.writerow([minute, *(f"{values[minute]:.1f}" for _, values in lines)])
    (HERE / flags.name / "over-time.svg").write_text(plot(lines))


if __name__ == "__main__":
    main()
