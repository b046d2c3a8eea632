"""scripts/plot_timeline.py finds a hop's five parts, draws them, and says what is wrong with a timeline that has none."""
import json
import subprocess
import sys
import xml.etree.ElementTree as xml

from conftest import ROOT

SCRIPT = ROOT / "scripts" / "plot_timeline.py"
TRACKS = ["0: compute", "1: to host", "2: to device", "worker 0"]


def timeline(path, spans):
    """Writes a timeline of (track, begin, duration, name), times in microseconds."""
    events = [{"ph": "M", "name": "thread_name", "pid": 0, "tid": track, "args": {"name": name}} for track, name in enumerate(TRACKS)]
    events += [{"ph": "X", "name": name, "pid": 0, "tid": track, "ts": begin, "dur": duration} for track, begin, duration, name in spans]
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def hop(start):
    return [(0, start, 2, "rope_route"), (1, start + 10, 3, "copy"), (3, start + 20, 1500, "attention"), (2, start + 1530, 3, "copy"),
            (0, start + 2000, 2, "tail_gather"), (0, start + 100, 900, "gemm")]


def plot(*arguments):
    return subprocess.run([sys.executable, "-B", str(SCRIPT), *map(str, arguments)], capture_output=True, text=True)


def test_the_five_parts_of_a_hop_are_drawn_with_their_times(tmp_path):
    run = timeline(tmp_path / "run.json", [span for i in range(5) for span in hop(i * 3000)])
    done = plot(run, run, "-o", tmp_path / "plot.svg", "--seconds", 0.009)
    assert done.returncode == 0, done.stderr
    words = ["".join(text.itertext()) for text in xml.parse(tmp_path / "plot.svg").getroot().iter("{http://www.w3.org/2000/svg}text")]
    assert "One hop: one layer of one offloaded token, 2.0 ms" in words
    assert [word for word in words if word.startswith(("leave:", "attend", "join:"))] == [
        "leave: the rows of Q, K and V step out of the accelerator's product: 2 µs", "attend over the KV in host memory: 1,500 µs",
        "join: the result enters the next output projection of its layer: 2 µs"]
    assert sorted(word for word in words if word in "12345") == sorted("1122334455"), "each number in the picture and in the list"
    assert "busy 50%" in words, "the worker attends half of the time"


def test_the_busy_stretch_is_one_that_every_track_reaches(tmp_path):
    spans = [span for i in range(9) for span in hop(i * 3000)]
    early = [span for span in spans if span[0] or span[1] > 15000]  # the accelerator's first spans are not kept
    run = timeline(tmp_path / "run.json", early + [(3, 5000, 900, "attention")])
    done = plot(run, run, "-o", tmp_path / "plot.svg", "--seconds", 0.006)
    assert done.returncode == 0 and "busy 0%" not in (tmp_path / "plot.svg").read_text(), done.stderr
    done = plot(run, run, "-o", tmp_path / "plot.svg", "--seconds", 1)
    assert done.returncode == 1 and "share less than 1 s" in done.stderr


def test_a_timeline_without_a_hop_is_refused(tmp_path):
    one_tier = timeline(tmp_path / "one.json", [(0, 0, 10, "gemm")])
    done = plot(one_tier, one_tier, "-o", tmp_path / "plot.svg")
    assert done.returncode == 1 and "no track 'to host'" in done.stderr
    unfinished = timeline(tmp_path / "cut.json", hop(0)[:4])
    done = plot(unfinished, unfinished, "-o", tmp_path / "plot.svg")
    assert done.returncode == 1 and "no complete hop" in done.stderr
