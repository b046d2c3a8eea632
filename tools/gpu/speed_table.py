"""Joins the rows of `tandem bench kernels --device` (the file of --json) and of peers.py (lines of JSON) into one object for a result of
check.sh, with attention of prompts by each of FlashInfer's kernels if it was measured by itself. Files may be absent.
Usage: speed_table.py SPEED.json PEERS.jsonl [prompts-KERNELS.json]..."""
import json
import pathlib
import sys


def rounded(value):
    return float(f"{value:.4g}") if isinstance(value, float) else value


def key_of(row):
    return row["op"], row.get("shape"), row["rows"], row.get("context")


def prompts_of(files):
    """{kernels: {prompt's tokens: microseconds}}."""
    found = {}
    for file in files:
        if file.exists():
            rows = json.loads(file.read_text()).get("rows", [])
            times = {str(row["rows"]): rounded(1e6 * row["seconds"]) for row in rows if row["op"] == "attention prefill"}
            found[file.stem.removeprefix("prompts-")] = times
    return found


def main(speed_file, peers_file, *prompts_files):
    peers, peer_info = {}, {}
    lines = peers_file.read_text().splitlines() if peers_file.exists() else []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:  # the program was stopped while it wrote the line
            continue
        if "op" in row:
            peers[key_of(row)] = row
        else:
            peer_info = row
    speed = json.loads(speed_file.read_text()) if speed_file.exists() else {}
    table = []
    for row in speed.get("rows", []):
        out = {name: row[name] for name in ("op", "shape", "rows", "context") if name in row}
        out |= {"us": 1e6 * row["seconds"], "gb_per_s": row["gb_per_s"], "tflop_per_s": row["tflop_per_s"], "share": row.get("share_of_ceiling")}
        if "choices" in row:  # the library's first algorithm beside the quickest; a case may have several kinds of products
            out |= {"ways": [each["choice"] for each in row["choices"]], "first_us": sum(each["usual_us"] for each in row["choices"]),
                    "timed_us": sum(each["us"] for each in row["choices"])}
        peer = peers.get(key_of(row), {})
        if "seconds" in peer:
            out |= {"torch_us": 1e6 * peer["seconds"], "times_torch": peer["seconds"] / row["seconds"]}
        elif "error" in peer:
            out["torch"] = peer["error"]
        table.append({name: rounded(value) for name, value in out.items()})
    print(json.dumps({"on": speed.get("device"), "ceilings": speed.get("ceilings"), "torch": peer_info, "left_out": len(speed.get("left_out", [])),
                      "prompts_us": prompts_of(prompts_files), "table": table}))


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
