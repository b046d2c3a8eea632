#!/usr/bin/env python3
"""Writes tests/goldens/packed: small quantised layers, packed and read back by the libraries that define the formats.

Each case is a folder with config.json (quantization_config alone), model.safetensors (the layer model.layers.0.mlp.up_proj) and golden.json: the
library, the matrix's shape, the first row and the FNV-1a hash of all float32 values scale * (q - zero), row behind row.
make_packed.py, which is written from the formats' descriptions, must write the same tensors.

    python3 -m venv build/packed-venv
    build/packed-venv/bin/pip install torch==2.15.0 transformers==5.23.0 accelerate==1.15.0 datasets==5.2.0 compressed-tensors==0.20.0 setuptools wheel
    build/packed-venv/bin/pip install --no-build-isolation --no-deps -r tools/packed/requirements.txt
    build/packed-venv/bin/python tools/packed/make_goldens.py
"""
import importlib.metadata
import json
import pathlib
import shutil

import numpy as np
import torch
from awq.models._config import AwqConfig
from awq.modules.linear.gemm import WQLinear_GEMM
from awq.utils.packing_utils import dequantize_gemm
from compressed_tensors.compressors import IntQuantizationCompressor, PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
from gptqmodel.nn_modules.qlinear.torch import TorchLinear
from gptqmodel.quantization.config import QuantizeConfig
from gptqmodel.utils.model import convert_gptq_v1_to_v2_format_module, convert_gptq_v2_to_v1_format_module
from make_packed import layer_tensors
from safetensors.torch import save_file

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "goldens" / "packed"
LAYER = "model.layers.0.mlp.up_proj"
LIBRARIES = {"gptq": "gptqmodel", "gptq_v2": "gptqmodel", "awq": "autoawq", "pack-quantized": "compressed-tensors", "int-quantized": "compressed-tensors"}
# name: format, bits, group (-1: a row), symmetric, type of the scales, rows, columns
CASES = {
    "gptq-4-symmetric-32": ("gptq", 4, 32, True, torch.float16, 32, 128),
    "gptq-4-symmetric-128": ("gptq", 4, 128, True, torch.float16, 32, 256),
    "gptq-4-asymmetric-64": ("gptq", 4, 64, False, torch.float16, 32, 128),
    "gptq-v2-4-asymmetric-32": ("gptq_v2", 4, 32, False, torch.float16, 32, 64),
    "gptq-8-symmetric-row": ("gptq", 8, -1, True, torch.float16, 32, 96),
    "gptq-v2-8-asymmetric-32": ("gptq_v2", 8, 32, False, torch.float16, 32, 64),
    "awq-32": ("awq", 4, 32, False, torch.float16, 32, 64),
    "awq-64": ("awq", 4, 64, False, torch.float16, 64, 128),
    "awq-128": ("awq", 4, 128, False, torch.float16, 32, 256),
    "pack-4-symmetric-32-bf16": ("pack-quantized", 4, 32, True, torch.bfloat16, 10, 128),
    "pack-4-asymmetric-64": ("pack-quantized", 4, 64, False, torch.float16, 10, 128),
    "pack-4-symmetric-row-of-44": ("pack-quantized", 4, -1, True, torch.float32, 6, 44),
    "pack-8-symmetric-128": ("pack-quantized", 8, 128, True, torch.bfloat16, 6, 256),
    "pack-8-asymmetric-row": ("pack-quantized", 8, -1, False, torch.float16, 6, 96),
    "int8-symmetric": ("int-quantized", 8, -1, True, torch.bfloat16, 6, 96),
    "int8-asymmetric": ("int-quantized", 8, -1, False, torch.float16, 6, 96),
}


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def integers(case, generator):
    """Unsigned q [rows, columns], scales and zero points [rows, groups]. Zero points of 0 and of the largest value occur."""
    _, bits, group, symmetric, dtype, rows, columns = case
    groups = 1 if group < 0 else columns // group
    q = torch.randint(0, 2**bits, (rows, columns), generator=generator)
    scales = (torch.rand(rows, groups, generator=generator) * 0.02 + 0.001).to(dtype)
    zeros = torch.full((rows, groups), 2**(bits - 1)) if symmetric else torch.randint(0, 2**bits, (rows, groups), generator=generator)
    return q, scales, zeros


def values_of(q, scales, zeros):
    """What the library is to quantise: exactly on its steps."""
    repeat = q.shape[1] // scales.shape[1]
    return (q - zeros.repeat_interleave(repeat, 1)) * scales.double().repeat_interleave(repeat, 1)


def gptq(case, q, scales, zeros):
    kind, bits, group, symmetric, _, rows, columns = case
    linear = torch.nn.Linear(columns, rows, bias=False, dtype=torch.float64)
    linear.weight.data = values_of(q, scales, zeros)
    module = TorchLinear(bits=bits, group_size=group, sym=symmetric, desc_act=False, in_features=columns, out_features=rows, pack_dtype=torch.int32)
    step = columns if group < 0 else group
    module.pack(linear, scales.double(), zeros.double(), (torch.arange(columns) // step).int())
    config = QuantizeConfig(bits=bits, group_size=group, sym=symmetric, desc_act=False, format=kind)
    if kind == "gptq":
        convert_gptq_v2_to_v1_format_module(module, config)
    tensors = {name: getattr(module, name).clone() for name in ("qweight", "qzeros", "scales", "g_idx")}
    if kind == "gptq":
        convert_gptq_v1_to_v2_format_module(module, bits=bits, pack_dtype=torch.int32)
    module.scales = module.scales.float()
    told = config.to_dict()
    told["meta"].pop("offload_to_disk_path")  # of this machine
    return tensors, module.eval().dequantize_weight().T, told


def awq(case, q, scales, zeros):
    _, bits, group, _, _, rows, columns = case
    linear = torch.nn.Linear(columns, rows, bias=False, dtype=torch.float64)
    linear.weight.data = values_of(q, scales, zeros)
    module = WQLinear_GEMM.from_linear(linear, bits, group, scales=scales.double().T, zeros=zeros.T)
    tensors = {name: getattr(module, name).clone() for name in ("qweight", "qzeros", "scales")}
    config = AwqConfig(w_bit=bits, q_group_size=group, version="gemm").to_transformers_dict()
    return tensors, dequantize_gemm(module.qweight, module.qzeros, module.scales.float(), bits, group).T, config


def compressed_tensors(case, q, scales, zeros):
    kind, bits, group, symmetric, dtype, _, _ = case
    args = QuantizationArgs(num_bits=bits, type="int", symmetric=symmetric, strategy="channel" if group < 0 else "group", group_size=None if group < 0 else group)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    compressor = PackedQuantizationCompressor if kind == "pack-quantized" else IntQuantizationCompressor
    state = {"weight": values_of(q, scales, zeros).float(), "weight_scale": scales.float()}
    if not symmetric:
        state["weight_zero_point"] = (zeros - 2**(bits - 1)).to(torch.int8)
    packed = compressor.compress(state, scheme)
    values = compressor.decompress(packed, scheme)["weight"]
    config = QuantizationConfig(config_groups={"group_0": scheme}, format=kind, quantization_status="compressed", ignore=["lm_head"])
    return packed | {"weight_scale": scales}, values, json.loads(config.model_dump_json())


def as_numpy(tensor):
    return tensor.contiguous().view(torch.int16).numpy().view(np.uint16) if tensor.dtype == torch.bfloat16 else tensor.numpy()


def check_other_opinion(case, tensors, q, scales, zeros):
    """make_packed.py must write the same tensors, but for zero points of 0 in GPTQ's first format, for which it has none."""
    kind, bits, _, symmetric, _, _, _ = case
    own = layer_tensors(kind, q.numpy(), as_numpy(scales), zeros.numpy(), bits, symmetric)
    assert own.keys() == tensors.keys(), (own.keys(), tensors.keys())
    for name, values in tensors.items():
        if not (name == "qzeros" and kind == "gptq" and not symmetric):
            assert np.array_equal(as_numpy(values), own[name]), (case, name)


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    torch.set_num_threads(1)
    for seed, (name, case) in enumerate(CASES.items()):
        q, scales, zeros = integers(case, torch.Generator().manual_seed(900 + seed))
        write = {"gptq": gptq, "gptq_v2": gptq, "awq": awq}.get(case[0], compressed_tensors)
        with torch.no_grad():
            tensors, values, config = write(case, q, scales, zeros)
        assert values.dtype == torch.float32 and torch.equal(values, values_of(q, scales, zeros).float()), name
        check_other_opinion(case, tensors, q, scales, zeros)
        folder = OUT / name
        folder.mkdir(parents=True)
        save_file({f"{LAYER}.{part}": tensor.contiguous() for part, tensor in tensors.items()}, folder / "model.safetensors")
        (folder / "model.safetensors").chmod(0o644)
        (folder / "config.json").write_text(json.dumps({"quantization_config": config}, indent=1, default=str) + "\n")
        values = values.contiguous().numpy()
        library = LIBRARIES[case[0]]
        golden = {"library": f"{library} {importlib.metadata.version(library)}", "layer": LAYER, "rows": case[5], "columns": case[6],
                  "first_row": [float(value) for value in values[0]], "fnv1a": fnv1a(values.astype("<f4").tobytes())}
        (folder / "golden.json").write_text(json.dumps(golden) + "\n")
        print(name, golden["fnv1a"])
    print(f"{OUT.name}: {sum(path.stat().st_size for path in OUT.rglob('*') if path.is_file())} bytes")


if __name__ == "__main__":
    main()
