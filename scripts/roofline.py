#!/usr/bin/env python3
"""Draws the roofline of a `tandem bench kernels --json` file: each kernel's speed over its operations per byte, under the machine's ceilings.

Usage: scripts/roofline.py KERNELS.json -o PLOT.svg
Circles are matrix products, triangles decode attention, squares prefill attention (hollow: in chunks); one colour for each shape.
Both axes are logarithmic. No packages needed.
"""
import argparse
import json
import math
import pathlib

WIDTH, HEIGHT = 960, 560
LEFT, RIGHT, TOP, BOTTOM = 80, 250, 30, 60
COLOURS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf"]


class Axis:
    """A logarithmic axis from whole power of ten to whole power of ten."""

    def __init__(self, values, start, end):
        self.low = math.floor(math.log10(min(values)))
        self.high = math.ceil(math.log10(max(values)))
        self.start, self.end = start, end

    def at(self, value):
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def powers(self):
        return [10.0**power for power in range(self.low, self.high + 1)]


def text(x, y, words, anchor="start", size=13):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-family="sans-serif">{words}</text>'


def line(x1, y1, x2, y2, style):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'


def marker(x, y, kind, colour):
    """A circle, triangle or square about a point; hollow for chunks."""
    paint = f'fill="white" stroke="{colour}" stroke-width="1.5"' if kind.endswith("chunks") else f'fill="{colour}" fill-opacity="0.8"'
    if kind.startswith("decode"):
        return f'<path d="M {x:.1f} {y - 6:.1f} l 6 11 h -12 z" {paint}/>'
    if kind.startswith("prefill"):
        return f'<rect x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9" {paint}/>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" {paint}/>'


def shape_of(name):
    """The shape of an attention kernel without what is done with it, or a product's name."""
    return name.removeprefix("decode ").removeprefix("prefill ").removesuffix(" in chunks")


def draw(result):
    rows = [row for row in result["rows"] if row["bytes"] > 0 and row["measured_seconds"] > 0]
    points = [(row["op"], row["operations"] / row["bytes"], row["operations"] / row["measured_seconds"]) for row in rows]
    isa, ceiling = next(iter(result["ceilings"].items()))
    read, compute = ceiling["read_bytes_per_second"], ceiling["operations_per_second"]
    intensities = [point[1] for point in points]
    tops = [point[2] for point in points] + ([compute] if compute else [])
    x = Axis(intensities, LEFT, WIDTH - RIGHT)
    y = Axis(tops, HEIGHT - BOTTOM, TOP)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    grid = 'stroke="#dddddd"'
    for power in x.powers():
        parts.append(line(x.at(power), TOP, x.at(power), HEIGHT - BOTTOM, grid))
        parts.append(text(x.at(power), HEIGHT - BOTTOM + 18, f"{power:g}", "middle"))
    for power in y.powers():
        parts.append(line(LEFT, y.at(power), WIDTH - RIGHT, y.at(power), grid))
        parts.append(text(LEFT - 8, y.at(power) + 4, f"{power * 1e-9:g}", "end"))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, "operations per byte read (logarithmic)", "middle"))
    parts.append(text(8, 18, f"GFLOP/s, {isa}, {result['threads']} threads"))
    roof = 'stroke="black" stroke-width="2"'
    lowest, highest = 10.0**x.low, 10.0**x.high
    knee = min(compute / read, highest) if compute else highest
    start = max(lowest, 10.0**y.low / read)
    parts.append(line(x.at(start), y.at(start * read), x.at(knee), y.at(knee * read), roof))
    if compute:
        parts.append(line(x.at(knee), y.at(compute), x.at(highest), y.at(compute), roof))
        parts.append(text(x.at(knee) + 6, y.at(compute) - 6, f"{compute * 1e-12:.1f} TFLOP/s in registers", "start", 12))
    middle = math.sqrt(start * knee)
    parts.append(text(x.at(middle) - 8, y.at(middle * read) - 8, f"{read * 1e-9:.1f} GB/s", "end", 12))
    names = list(dict.fromkeys(name for name, _, _ in points))
    shapes = list(dict.fromkeys(shape_of(name) for name in names))
    for index, name in enumerate(names):
        colour = COLOURS[shapes.index(shape_of(name)) % len(COLOURS)]
        for own, intensity, speed in points:
            if own == name:
                parts.append(marker(x.at(intensity), y.at(speed), name, colour))
        height = TOP + 14 + 22 * index
        parts.append(marker(WIDTH - RIGHT + 20, height - 4, name, colour))
        parts.append(text(WIDTH - RIGHT + 32, height, name))
    return "\n".join(parts + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", type=pathlib.Path)
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    options = parser.parse_args()
    result = json.loads(options.kernels.read_text())
    if not result.get("rows"):
        parser.error(f"{options.kernels} has no rows")
    options.output.write_text(draw(result))


if __name__ == "__main__":
    main()
