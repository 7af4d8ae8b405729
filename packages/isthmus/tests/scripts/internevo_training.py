"""InternEvo's training loop over its dummy data set with a small model, as its own tests have it.

``internevo_training.py [bf16] [tensor] [flash]``: in bfloat16, tensor parallel over two ranks, with flash-attn and packed
sequences; the last line that rank 0 prints is JSON: the losses and gradient norms of four
steps, and the largest difference of the first step's outputs from those of a copy of the model on CPU tensors.
"""
# ruff: noqa - written as its author would

import json
import os
import sys

for name, alone in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_PORT", "29577")):
    os.environ.setdefault(name, alone)
os.environ["MASTER_ADDR"] = (
    "::1"  # InternEvo puts brackets around it, which Python has only for IPv6 since 3.11.4
)

import internlm
import torch
from internlm.accelerator import get_accelerator
from internlm.core.context import Config, ParallelMode
from internlm.core.context import global_context as gpc
from internlm.data import build_train_loader_with_data_type
from internlm.initialize.launch import args_sanity_check
from internlm.model.losses import FlashGPTLMLoss
from internlm.model.metrics import AccPerplex
from internlm.train import (
    get_scheduler_hooks,
    initialize_isp_communicator,
    initialize_model,
    initialize_optimizer,
)

STEPS = 4
alert = dict(enable_feishu_alert=False, feishu_alert_address=None, light_monitor_address=None)
config = dict(
    model_type="INTERNLM",
    parallel=dict(
        zero1=dict(size=-1),
        tensor=dict(size=2 if "tensor" in sys.argv else 1, mode="mtp"),
        pipeline=dict(size=1, interleaved_overlap=True),
        weight=dict(size=1, overlap=True, memory_pool=True),
    ),
    data=dict(
        type="tokenized",
        train_folder=None,  # its dummy data set
        valid_folder=None,
        seq_len=64,
        micro_num=2,
        micro_bsz=1,
        pack_sample_into_one=False,
        use_packed_dataset="flash" in sys.argv,
        min_length=0,
        total_steps=STEPS,
        valid_micro_num=1,
        valid_every=0,
        rampup_batch_size=None,
        diag_outlier_ratio=1.1,
        num_worker=0,
    ),
    model=dict(
        dtype="torch.bfloat16" if "bf16" in sys.argv else "torch.float32",
        vocab_size=256,
        hidden_size=64,
        num_layers=2,
        num_attention_heads=4,
        mlp_ratio=2,
        norm_type="rmsnorm",
        layer_norm_epsilon=1e-5,
        apply_post_layer_norm=False,
        embed_split_hidden=True,
        embed_grad_scale=1,
        parallel_output=False,
        use_flash_attn="flash" in sys.argv,
        checkpoint=False,
        num_chunks=1,
    ),
    adam=dict(lr=1e-2, adam_beta1=0.9, adam_beta2=0.95, adam_beta2_c=0, adam_eps=1e-8, weight_decay=0.01),
    beta2_scheduler=dict(init_beta2=0.95, c=0, cur_iter=-1),
    lr_scheduler=dict(total_steps=STEPS, init_steps=0, warmup_ratio=0.01, eta_min=1e-5, last_epoch=-1),
    grad_scaler=dict(
        fp16=dict(initial_scale=2**10, min_scale=1, growth_interval=1000),
        growth_factor=2,
        backoff_factor=0.5,
        max_scale=2**24,
        hysteresis=2,
    ),
    hybrid_zero_optimizer=dict(
        overlap_sync_grad=True, overlap_sync_param=False, reduce_bucket_size=1 << 20, clip_grad_norm=1.0
    ),
    loss=dict(label_smoothing=0),
    ckpt=dict(enable_save_ckpt=False, auto_resume=False),
    monitor=dict(alert=alert),
    cudnn_deterministic=False,
    cudnn_benchmark=False,
)

internlm.launch_from_torch(config=Config(config), seed=1024)
args_sanity_check()
model = initialize_model()
communicator = initialize_isp_communicator(model)
optimizer, beta2_scheduler, lr_scheduler = initialize_optimizer(model, communicator)
loader, types = build_train_loader_with_data_type()
groups = {
    f"{short}_pg": gpc.get_group(getattr(ParallelMode, name))
    for short, name in (("tp", "TENSOR"), ("dp", "DATA"))
}
metric = AccPerplex(device=get_accelerator().get_device_id(), dataset_types=types, **groups)
trainer, loader, _, _ = internlm.initialize_trainer(
    model=model,
    optimizer=optimizer,
    criterion=FlashGPTLMLoss(parallel_output=False, label_smoothing=0),
    train_dataloader=loader,
    lr_scheduler=lr_scheduler,
    beta2_scheduler=beta2_scheduler,
    scheduler_hooks=get_scheduler_hooks(metric, optimizer, communicator),
)
trainer.train()

inner = model.model
on_cpu = None
if "tensor" not in sys.argv:  # without its process group the model needs no device
    on_cpu = initialize_model().model.cpu()
    on_cpu.load_state_dict(inner.state_dict())
differences = []


def to_cpu(value):
    return value.cpu() if isinstance(value, torch.Tensor) else value


def compare(module, args, kwargs, output):
    expected = on_cpu(*map(to_cpu, args), **{name: to_cpu(value) for name, value in kwargs.items()})
    differences.append((output.cpu() - expected).abs().max().item())


hook = inner.register_forward_hook(compare, with_kwargs=True) if on_cpu is not None else None
losses, norms = [], []
batches = iter(loader)
for step in range(STEPS):
    batch = next(batches)
    trainer.zero_grad()
    if batch[0].get("type_ids") is not None:
        metric.set_current_type_ids(type_ids=batch[0].pop("type_ids"))
    _, _, loss = trainer.execute_schedule(
        batch, forward_only=False, return_loss=True, return_output_label=False
    )
    if hook is not None:
        hook.remove()
    stepped, found = trainer.step()
    assert stepped
    losses.append(loss.item())
    norms.append(found["0_default"])
assert not any(differences), f"outputs on the accelerator and on CPU tensors differ by {differences}"
if gpc.get_global_rank() == 0:
    print(
        json.dumps(
            {
                "accelerator": type(get_accelerator()).__name__,
                "device": str(next(inner.parameters()).device),
                "losses": losses,
                "norms": norms,
                "differences": differences,
            }
        ),
        flush=True,
    )
