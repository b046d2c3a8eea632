"""The optimizer: Muon for the matrices of the layers, AdamW for the embedding and the norms."""
import math

import torch
from torch import Tensor

from model import Llama

# Newton-Schulz: coefficients that bring every singular value near 1 in few rounds (Jordan et al., Muon, 2024).
ROUNDS = 5
A, B, C = 3.4445, -4.7750, 2.0315


def orthogonalize(matrices: Tensor) -> Tensor:
    """[count, rows, columns]: about the nearest orthogonal matrix of each one."""
    x = matrices.bfloat16() if matrices.is_cuda else matrices
    wide = x.shape[-2] <= x.shape[-1]
    x = x if wide else x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(ROUNDS):
        gram = x @ x.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=B, alpha=C)
        x = torch.baddbmm(x, polynomial, x, beta=A)
    return x if wide else x.mT


class Muon(torch.optim.Optimizer):
    """Momentum, then a step along the nearest orthogonal matrix, as large as a typical step of AdamW at the same rate.

    The parameters of a group have one shape, so that a few batched products serve all of them.
    """

    def __init__(self, matrices: list[Tensor], momentum: float = 0.95, weight_decay: float = 0.1) -> None:
        shapes = sorted({tuple(matrix.shape) for matrix in matrices})
        groups = [{"params": [matrix for matrix in matrices if tuple(matrix.shape) == shape]} for shape in shapes]
        super().__init__(groups, {"lr": 0.0, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            matrices = group["params"]
            gradients = torch.stack([matrix.grad for matrix in matrices])
            state = self.state[matrices[0]]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(gradients)
            state["momentum"].lerp_(gradients, 1 - group["momentum"])
            update = orthogonalize(gradients.lerp_(state["momentum"], group["momentum"])).float()
            rate, scale = group["lr"], 0.2 * math.sqrt(max(gradients.shape[-2:]))
            torch._foreach_mul_(matrices, 1 - rate * group["weight_decay"])
            torch._foreach_add_(matrices, list(update.unbind(0)), alpha=-rate * scale)


def make(model: Llama) -> list[torch.optim.Optimizer]:
    matrices = [parameter for parameter in model.layers.parameters() if parameter.dim() == 2]
    norms = [parameter for parameter in model.parameters() if parameter.dim() == 1]
    groups = [{"params": [model.embed_tokens.weight], "weight_decay": 0.1}, {"params": norms, "weight_decay": 0.0}]
    return [Muon(matrices), torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-9, fused=norms[0].is_cuda)]
