"""Writes and reads a safetensors file: the length of a JSON header, the header, the tensors' bytes. Needs nothing but PyTorch."""
import json
import pathlib
import struct

import torch
from torch import Tensor

NAMES = {torch.bfloat16: "BF16", torch.float32: "F32"}
TYPES = {name: dtype for dtype, name in NAMES.items()}


def write(tensors: dict[str, Tensor], path: pathlib.Path) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    parts, end = [], 0
    for name in sorted(tensors):
        tensor = tensors[name].detach().to("cpu").contiguous()
        parts.append(tensor.view(torch.uint8).numpy().tobytes())
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [end, end + len(parts[-1])]}
        end += len(parts[-1])
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the tensors begin at a multiple of 8 bytes
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def read(path: pathlib.Path) -> dict[str, Tensor]:
    content = bytearray(path.read_bytes())
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first, end = (8 + length + offset for offset in entry["data_offsets"])
            tensors[name] = torch.frombuffer(content, dtype=TYPES[entry["dtype"]], offset=first,
                                             count=(end - first) // TYPES[entry["dtype"]].itemsize).view(entry["shape"]).clone()
    return tensors
