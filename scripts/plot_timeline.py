#!/usr/bin/env python3
"""Draws two timelines of `tandem bench tiers --timeline-out` (or of `tandem serve`): one hop with its five parts, and a busy stretch.

Usage: scripts/plot_timeline.py HOP.json BUSY.json -o PLOT.svg [--seconds S]
  HOP.json    a run with one offloaded sequence: each attention of a worker belongs to one hop
  BUSY.json   a run with many; the stretch of S seconds (default 0.06) with the most host attention is drawn
No packages needed; Perfetto shows a whole file.
"""
import argparse
import bisect
import json
import pathlib
import sys

WIDTH, LEFT, RIGHT, ROW, BAR = 1200, 130, 20, 36, 24
COLOURS = {"gemm": "#4c78a8", "gate_up": "#4c78a8", "attention": "#f58518", "attend": "#f58518", "copy": "#54a24b", "leave": "#e45756",
           "join": "#b279a2", "bind and launch a group": "#222222"}
OTHER = "#bab0ac"
LEGEND = [("gemm", "matrix products"), ("attention", "attention"), ("leave", "rows leave"), ("copy", "copies"), ("join", "rows join"),
          (None, "other operations")]


def read(path):
    """{track name: [(begin, end, name)]} in seconds, sorted, and only tracks that have spans."""
    names, spans = {}, {}
    for event in json.loads(path.read_text())["traceEvents"]:
        track = event["pid"], event["tid"]
        if event["ph"] == "M" and event["name"] == "thread_name":
            names[track] = event["args"]["name"]
        elif event["ph"] == "X":
            begin = event["ts"] / 1e6
            spans.setdefault(track, []).append((begin, begin + event["dur"] / 1e6, event["name"]))
    return {names[track]: sorted(spans[track]) for track in names if track in spans}


def track(tracks, ending):
    """The spans of the track whose name ends so; an exit with a message if there is none."""
    for name, spans in tracks.items():
        if name.endswith(ending) or name.startswith(ending):
            return spans
    sys.exit(f"plot_timeline.py: the timeline has no track '{ending}': is it of a run with two tiers and offloaded requests?")


def hops(tracks):
    """Every hop that is complete: its five spans in order of time (leave, copy, attend, copy back, join)."""
    compute = track(tracks, "compute")
    leaves = [span for span in compute if span[2] == "rope_route"]
    joins = [span for span in compute if span[2] == "tail_gather"]
    out, back = track(tracks, "to host"), track(tracks, "to device")

    def last_before(spans, time):
        at = bisect.bisect_right([span[1] for span in spans], time) - 1
        return spans[at] if at >= 0 else None

    def first_from(spans, time):
        at = bisect.bisect_left([span[0] for span in spans], time)
        return spans[at] if at < len(spans) else None

    found = []
    for attend in track(tracks, "worker"):
        sent = last_before(out, attend[0])
        leave = last_before(leaves, sent[0]) if sent else None
        answer = first_from(back, attend[1])
        join = first_from(joins, answer[1]) if answer else None
        if leave and join:
            found.append((leave, sent, attend, answer, join))
    return found


def busiest(spans, seconds, others):
    """The start of the stretch in which the spans cover the most time; the others, of which a timeline may have kept less, reach over it."""
    first = max(track[0][0] for track in (spans, others))
    last = min(track[-1][1] for track in (spans, others)) - seconds
    starts = [span[0] for span in spans]
    covered = [0.0]
    for begin, end, _ in spans:
        covered.append(covered[-1] + end - begin)
    inside = [i for i, start in enumerate(starts) if first <= start <= last]
    if not inside:
        sys.exit(f"plot_timeline.py: accelerator and host core share less than {seconds:g} s of the timeline: fewer --seconds, or a longer run")
    return starts[max(inside, key=lambda i: covered[bisect.bisect_left(starts, starts[i] + seconds)] - covered[i])]


def share(spans, start, end):
    """The part of the stretch that the spans cover; they do not overlap."""
    return sum(max(0.0, min(span[1], end) - max(span[0], start)) for span in spans) / (end - start)


class Panel:
    """Rows of bars over one stretch of time, from `y` downwards."""

    def __init__(self, out, y, start, end):
        self.out, self.y, self.start, self.end = out, y, start, end

    def x(self, time):
        return LEFT + (min(max(time, self.start), self.end) - self.start) / (self.end - self.start) * (WIDTH - LEFT - RIGHT)

    def row(self, label, spans, marked=(), note=None):
        """One row; returns the y of its bars."""
        y = self.y
        self.out.append(f'<text x="{LEFT - 10}" y="{y + 16}" text-anchor="end">{label}</text>')
        if note:
            self.out.append(f'<text x="{LEFT - 10}" y="{y + 30}" text-anchor="end" font-size="11" fill="#666">{note}</text>')
        self.out.append(f'<rect x="{LEFT}" y="{y}" width="{WIDTH - LEFT - RIGHT}" height="{BAR}" fill="#f2f2f2"/>')
        for begin, end, what in spans:
            if end > self.start and begin < self.end:
                width = max(self.x(end) - self.x(begin), 0.8)
                self.out.append(f'<rect x="{self.x(begin):.1f}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{COLOURS.get(what, OTHER)}"/>')
        for begin, end, what in marked:  # drawn last and wide enough to be seen
            self.out.append(f'<rect x="{self.x(begin) - 1:.1f}" y="{y - 2}" width="{max(self.x(end) - self.x(begin), 3):.1f}" height="{BAR + 4}" fill="{COLOURS[what]}"/>')
        self.y += ROW + (10 if note else 0)
        return y

    def axis(self):
        span_ms = (self.end - self.start) * 1e3
        step = next(size for size in (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200) if span_ms / size <= 10)
        tick = 0.0
        while tick <= span_ms + 1e-9:
            at = self.x(self.start + tick / 1e3)
            self.out.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{self.y - 6}" y2="{self.y - 1}" stroke="#999"/>')
            anchor = "end" if at > WIDTH - 40 else "middle"
            self.out.append(f'<text x="{at:.1f}" y="{self.y + 11}" text-anchor="{anchor}" fill="#555">{tick:g} ms</text>')
            tick += step
        self.y += 28


def numbered(out, number, x, y):
    out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8" fill="#222"/>')
    out.append(f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle" fill="white" font-weight="bold">{number}</text>')


def draw_hop(out, y, tracks):
    """The hop of median length, with its parts numbered and explained; returns the y below."""
    complete = sorted(hops(tracks), key=lambda hop: hop[4][1] - hop[0][0])
    if not complete:
        sys.exit("plot_timeline.py: the timeline of the hop has no complete hop: run longer, or with one offloaded sequence")
    hop = complete[len(complete) // 2]
    leave, sent, attend, answer, join = hop
    length = join[1] - leave[0]
    panel = Panel(out, y, leave[0] - 0.06 * length, join[1] + 0.10 * length)
    marked = [(*leave[:2], "leave"), (*join[:2], "join")]
    out.append(f'<text x="{LEFT}" y="{y}" font-size="15" font-weight="bold">One hop: one layer of one offloaded token, {length * 1e3:.1f} ms</text>')
    panel.y += 46  # room for the numbers above
    rows = {
        1: panel.row("accelerator", track(tracks, "compute"), marked), 2: panel.row("link to host", track(tracks, "to host"), [sent]),
        3: panel.row("host core", track(tracks, "worker")), 4: panel.row("link back", track(tracks, "to device"), [answer]),
    }
    rows[5] = rows[1]
    micros = [(span[1] - span[0]) * 1e6 for span in hop]
    names = ["leave: the rows of Q, K and V step out of the accelerator's product", "copy them to the host", "attend over the KV in host memory",
             "copy the result back", "join: the result enters the next output projection of its layer"]
    for number, span in enumerate(hop, 1):
        at, top = (panel.x(span[0]) + panel.x(span[1])) / 2, rows[number]
        if number in (1, 5):
            out.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top - 9}" y2="{top - 2}" stroke="#222"/>')
        numbered(out, number, *{1: (at, top - 16), 5: (at, top - 16), 3: (at, top + BAR / 2)}.get(number, (at + 16, top + BAR / 2)))
    panel.axis()
    y = panel.y + 4
    for number, (name, duration) in enumerate(zip(names, micros), 1):
        column, line = (number - 1) // 3, (number - 1) % 3
        at = LEFT + column * 540
        numbered(out, number, at + 8, y + line * 20)
        out.append(f'<text x="{at + 22}" y="{y + line * 20 + 4}">{name}: {duration:,.0f} µs</text>')
    return y + 3 * 20 + 8


def draw_busy(out, y, tracks, seconds):
    """The busiest stretch, with how busy each side is; returns the y below."""
    worker, compute = track(tracks, "worker"), track(tracks, "compute")
    start = busiest(worker, seconds, compute)
    panel = Panel(out, y, start, start + seconds)
    out.append(f'<text x="{LEFT}" y="{y}" font-size="15" font-weight="bold">Many offloaded tokens: both sides at work</text>')
    panel.y += 14
    panel.row("accelerator", compute, note=f"busy {share(compute, start, start + seconds):.0%}")
    panel.row("link to host", track(tracks, "to host"))
    panel.row("host core", worker, note=f"busy {share(worker, start, start + seconds):.0%}")
    panel.row("link back", track(tracks, "to device"))
    panel.axis()
    return panel.y


def draw(hop, busy, seconds):
    out = []
    y = draw_hop(out, 28, hop) + 26
    y = draw_busy(out, y, busy, seconds) + 6
    at = LEFT
    for what, label in LEGEND:
        out.append(f'<rect x="{at}" y="{y}" width="12" height="12" fill="{COLOURS.get(what, OTHER)}"/><text x="{at + 17}" y="{y + 11}">{label}</text>')
        at += 45 + 7 * len(label)
    height = y + 28
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{height}" fill="white"/>', *out, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hop", type=pathlib.Path)
    parser.add_argument("busy", type=pathlib.Path)
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=0.06)
    options = parser.parse_args()
    options.output.write_text(draw(read(options.hop), read(options.busy), options.seconds))
    print(options.output)


if __name__ == "__main__":
    main()
