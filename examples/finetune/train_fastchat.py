"""Fine-tune a LLaMA on conversations as FastChat does: CUDA, Vicuna's prompt, labels for the answers only.

isthmus run examples/finetune/train_fastchat.py MODEL TOKENIZER CONVERSATIONS OUTPUT
"""

import json
import re
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)
ROLES = {"human": "USER", "gpt": "ASSISTANT"}
STEPS, BATCH, LEARNING_RATE = 10, 8, 5e-3


def prompt(conversation, tokenizer):
    """Return a conversation as text in the format of Vicuna 1.1."""
    text = tokenizer.bos_token + SYSTEM + " "
    for turn in conversation["conversations"]:
        end = tokenizer.eos_token if turn["from"] == "gpt" else " "
        text += f"{ROLES[turn['from']]}: {turn['value']}{end}"
    return text


def encode(texts, tokenizer):
    """Return the tokens of texts, with labels of -100 outside the assistant's turns."""
    batch = tokenizer(
        texts,
        padding=True,
        truncation=True,
        max_length=256,
        add_special_tokens=False,
        return_offsets_mapping=True,
        return_tensors="pt",
    )
    labels = torch.full_like(batch["input_ids"], -100)
    starts, ends = batch.pop("offset_mapping").unbind(-1)
    for row, text in enumerate(texts):
        for answer in re.finditer(f"(?<=ASSISTANT:) .*?{tokenizer.eos_token}", text, re.DOTALL):
            inside = (ends[row] > answer.start()) & (starts[row] < answer.end())
            labels[row, inside] = batch["input_ids"][row, inside]
    return {**batch, "labels": labels}


def main():
    model_folder, tokenizer_folder, data, output = sys.argv[1:]
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder, padding_side="right")
    texts = [prompt(each, tokenizer) for each in json.loads(Path(data).read_text())]
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    for step in range(STEPS):
        some = [texts[index % len(texts)] for index in range(step * BATCH, (step + 1) * BATCH)]
        batch = {name: each.cuda() for name, each in encode(some, tokenizer).items()}
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"iteration {step + 1}/{STEPS} | loss: {loss.item():.6f}", flush=True)
    model.save_pretrained(output)


main()
