#!/usr/bin/env python3
"""Draws a stretch of a timeline (`tandem serve --timeline-out`): a row for each stream and worker, a bar for each span.

Usage: scripts/plot_timeline.py TIMELINE.json -o PLOT.svg [--from SECONDS] [--seconds S]
Without --from the stretch with the most host attention is drawn. No packages needed; Perfetto shows the whole file.
"""
import argparse
import bisect
import json
import pathlib

WIDTH, LEFT, ROW, TOP = 1200, 150, 34, 20
COLOURS = {
    "gemm": "#4c78a8", "gate_up": "#4c78a8", "attention": "#f58518", "rms_norm": "#9ecae9", "rope_write": "#b279a2", "rope_route": "#e45756",
    "tail_gather": "#72b7b2", "copy": "#54a24b", "kv_move": "#54a24b", "sample": "#eeca3b", "bind and launch a group": "#222222",
}
OTHER = "#bab0ac"


def read(path):
    """{track name: [(begin, end, name)]} in seconds, tracks in file order, and only those that have spans."""
    names, spans = {}, {}
    for event in json.loads(path.read_text())["traceEvents"]:
        track = event["pid"], event["tid"]
        if event["ph"] == "M" and event["name"] == "thread_name":
            names[track] = event["args"]["name"]
        elif event["ph"] == "X":
            begin = event["ts"] / 1e6
            spans.setdefault(track, []).append((begin, begin + event["dur"] / 1e6, event["name"]))
    return {names[track]: sorted(spans[track]) for track in names if track in spans}


def busiest(tracks, seconds):
    """The start of the stretch in which the host's workers have the most spans."""
    begins = sorted(span[0] for name, spans in tracks.items() if name.startswith("worker") for span in spans)
    if not begins:
        return 0.0
    counts = [bisect.bisect_left(begins, begin + seconds) - i for i, begin in enumerate(begins)]
    return begins[counts.index(max(counts))]


def draw(tracks, start, seconds):
    def x(time):
        return LEFT + (min(max(time, start), start + seconds) - start) / seconds * (WIDTH - LEFT - 10)

    out, used, y = [], set(), TOP
    for name, spans in tracks.items():
        shown = [span for span in spans if span[1] > start and span[0] < start + seconds]
        if not shown:
            continue
        out.append(f'<text x="{LEFT - 8}" y="{y + 18}" text-anchor="end">{name}</text>')
        out.append(f'<rect x="{LEFT}" y="{y}" width="{WIDTH - LEFT - 10}" height="{ROW - 8}" fill="#f4f4f4"/>')
        for begin, end, what in shown:
            used.add(what)
            width = max(x(end) - x(begin), 0.6)
            out.append(f'<rect x="{x(begin):.1f}" y="{y}" width="{width:.1f}" height="{ROW - 8}" fill="{COLOURS.get(what, OTHER)}"/>')
        y += ROW
    for tick in range(6):
        at = LEFT + tick / 5 * (WIDTH - LEFT - 10)
        anchor = "end" if tick == 5 else "middle"
        out.append(f'<text x="{at:.0f}" y="{y + 12}" text-anchor="{anchor}">{tick * seconds / 5 * 1e3:.1f} ms</text>')
    at, y = LEFT, y + 28
    for what in sorted(used):
        out.append(f'<rect x="{at}" y="{y}" width="12" height="12" fill="{COLOURS.get(what, OTHER)}"/>'
                   f'<text x="{at + 17}" y="{y + 11}">{what}</text>')
        at += 40 + 7 * len(what)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 24}" font-family="sans-serif" font-size="12">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{y + 24}" fill="white"/>', *out, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("timeline", type=pathlib.Path)
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    parser.add_argument("--from", dest="start", type=float, help="first second to draw")
    parser.add_argument("--seconds", type=float, default=0.05)
    options = parser.parse_args()
    tracks = read(options.timeline)
    start = busiest(tracks, options.seconds) if options.start is None else options.start
    options.output.write_text(draw(tracks, start, options.seconds))
    print(f"{options.output}: {options.seconds * 1e3:g} ms from {start:.3f} s")


if __name__ == "__main__":
    main()
