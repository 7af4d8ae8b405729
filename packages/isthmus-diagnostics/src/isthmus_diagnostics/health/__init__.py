"""Health of a training job while it runs: hangs, slow ranks, loss, corrupted matmuls, a checkpoint before death.

``isthmus run --health`` switches it on; in a program it is a context manager::

    with isthmus_diagnostics.health.watch("health", save=lambda: {"model": model.state_dict()}):
        train()
"""

from isthmus_diagnostics.health.session import Health as watch

__all__ = ["watch"]
