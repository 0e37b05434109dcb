"""A small byte-level GPT, with dropout, so that resuming exactly needs the RNG of every rank."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from demo.corpus import CONTEXT_BYTES

WIDTH = 96
HEADS = 4
LAYERS = 3
DROPOUT = 0.1


class Block(nn.Module):
    """Attention and a feed-forward part, both with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.feed_norm = nn.LayerNorm(WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        """`x` is (batch, length, WIDTH)."""
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.attention_norm(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(attended.transpose(1, 2).reshape(batch, length, WIDTH)))
        fed: Tensor = self.feed(self.feed_norm(x))
        out: Tensor = x + self.dropout(fed)
        return out


class Gpt(nn.Module):
    """Bytes in, next-byte logits out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, WIDTH)
        self.position = nn.Embedding(CONTEXT_BYTES, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 256, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Int64 (batch, length) in, logits (batch, length, 256) out."""
        x = self.embed(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits
