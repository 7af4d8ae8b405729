"""A small diffusion model of diffusers: trained, sampled, saved, loaded in float16, offloaded."""
# ruff: noqa - written as its author would

import json
import sys

import torch
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel

torch.manual_seed(0)
model = UNet2DModel(
    sample_size=8,
    in_channels=1,
    out_channels=1,
    layers_per_block=1,
    block_out_channels=(8, 16),
    norm_num_groups=4,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
).to("cuda")
scheduler = DDPMScheduler(num_train_timesteps=10)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
clean, noise = torch.rand(2, 1, 8, 8, device="cuda"), torch.randn(2, 1, 8, 8, device="cuda")
steps = torch.randint(0, 10, (2,), device="cuda")
losses = []
for _ in range(3):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = model(scheduler.add_noise(clean, noise, steps), steps).sample
    loss = torch.nn.functional.mse_loss(out.float(), noise)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())


def sample(pipeline):
    generator = torch.Generator("cuda").manual_seed(0)
    return pipeline(num_inference_steps=2, generator=generator, output_type="np").images


pipeline = DDPMPipeline(model, scheduler).to("cuda")
image = sample(pipeline)
pipeline.save_pretrained(sys.argv[1])
offloaded = DDPMPipeline.from_pretrained(sys.argv[1])
offloaded.enable_sequential_cpu_offload()
half = DDPMPipeline.from_pretrained(sys.argv[1], torch_dtype=torch.float16).to("cuda")
print(
    json.dumps(
        {
            "losses": losses,
            "offloaded": float(abs(sample(offloaded) - image).max()),
            "half": float(abs(sample(half) - image).max()),
            "device": half.device.type,
        }
    )
)
