"""LoRA on a small model: trained under autocast, saved, loaded, merged."""
# ruff: noqa - written as its author would

import json
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=1,
    num_attention_heads=4,
    num_key_value_heads=2,
)
base = LlamaForCausalLM(config)
state = {name: x.clone() for name, x in base.state_dict().items()}
lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
model = get_peft_model(base.to("cuda"), lora)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
x = torch.arange(16, device="cuda").view(2, 8)
losses = []
for _ in range(3):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids=x, labels=x).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
model.save_pretrained(sys.argv[1])
fresh = LlamaForCausalLM(config)
fresh.load_state_dict(state)
loaded = PeftModel.from_pretrained(fresh.to("cuda"), sys.argv[1])
again = loaded(input_ids=x).logits
same = torch.allclose(again, model(input_ids=x).logits, atol=1e-5)
merged = torch.allclose(again, loaded.merge_and_unload()(input_ids=x).logits, atol=1e-4)
print(json.dumps({"losses": losses, "same": same, "merged": merged, "device": again.device.type}))
