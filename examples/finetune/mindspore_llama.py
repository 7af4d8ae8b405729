"""Compute the loss of a LLaMA in MindSpore, from a converted checkpoint and a MindRecord file.

    python examples/finetune/mindspore_llama.py MODEL CHECKPOINT MINDRECORD [LOGITS]

MODEL is the Hugging Face folder whose config.json describes the model, LOGITS a .npy file to write. Only MindSpore is
needed, not MindFormers.
"""

import json
import sys
from itertools import islice
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import ops
from mindspore.mindrecord import FileReader

BATCH = 8


def rms_norm(x, weight, epsilon):
    """Return x divided by the root of the mean of its squares, times the weight."""
    return x * ops.rsqrt(ops.mean(x * x, -1, keep_dims=True) + epsilon) * weight


def rotated(x, base):
    """Return [batch, heads, tokens, features] with rotary position embedding, halves apart."""
    half = x.shape[-1] // 2
    rates = base ** (-np.arange(half) / half)
    angles = np.arange(x.shape[-2])[:, None] * rates
    cos, sin = (ms.Tensor(each, ms.float32) for each in (np.cos(angles), np.sin(angles)))
    first, second = x[..., :half], x[..., half:]
    return ops.cat([first * cos - second * sin, second * cos + first * sin], -1)


class Llama:
    """The forward pass with the parameters of a checkpoint in MindFormers' names."""

    def __init__(self, config, parameters):
        self.config, self.parameters = config, parameters

    def linear(self, x, name):
        return ops.matmul(x, self.parameters[f"{name}.weight"].T)

    def norm(self, x, name):
        return rms_norm(x, self.parameters[f"{name}.weight"], self.config["rms_norm_eps"])

    def attention(self, x, name):
        batch, length, _ = x.shape
        heads, groups = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        q, k, v = (
            self.linear(x, f"{name}.{part}").reshape(batch, length, count, -1).transpose(0, 2, 1, 3)
            for part, count in (("wq", heads), ("wk", groups), ("wv", groups))
        )
        base = self.config["rope_parameters"]["rope_theta"]
        q, k = rotated(q, base), rotated(k, base)
        k, v = (each.repeat_interleave(heads // groups, 1) for each in (k, v))
        scores = ops.matmul(q, k.transpose(0, 1, 3, 2)) / q.shape[-1] ** 0.5
        later = ms.Tensor(np.triu(np.ones((length, length), bool), 1))
        weights = ops.softmax(scores.masked_fill(later, -1e9), -1)
        return self.linear(ops.matmul(weights, v).transpose(0, 2, 1, 3).reshape(x.shape), f"{name}.wo")

    def feed_forward(self, x, name):
        gate = ops.silu(self.linear(x, f"{name}.w1"))
        return self.linear(gate * self.linear(x, f"{name}.w3"), f"{name}.w2")

    def __call__(self, tokens):
        """Return the logits of int32 tokens of [batch, length]."""
        x = self.parameters["model.tok_embeddings.embedding_weight"][tokens]
        for layer in range(self.config["num_hidden_layers"]):
            name = f"model.layers.{layer}"
            x = x + self.attention(self.norm(x, f"{name}.attention_norm"), f"{name}.attention")
            x = x + self.feed_forward(self.norm(x, f"{name}.ffn_norm"), f"{name}.feed_forward")
        return self.linear(self.norm(x, "model.norm_out"), "lm_head")


def main():
    model, checkpoint, data, *output = sys.argv[1:]
    config = json.loads(Path(model, "config.json").read_text())
    llama = Llama(config, ms.load_checkpoint(f"{checkpoint}/rank_0/checkpoint_0.ckpt"))
    rows = list(islice(FileReader(data).get_next(), BATCH))
    tokens, labels = (ms.Tensor(np.stack([row[name] for row in rows])) for name in ("input_ids", "labels"))
    logits = llama(tokens)
    loss = ops.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), labels[:, 1:].reshape(-1))
    print(f"loss: {loss.asnumpy():.6f}")
    if output:
        np.save(output[0], logits.asnumpy())


main()
