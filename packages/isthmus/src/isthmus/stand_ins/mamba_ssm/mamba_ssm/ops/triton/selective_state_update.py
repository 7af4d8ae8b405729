"""One position of a scan, for generation."""

from isthmus.ops.state_space import state_update as selective_state_update

selective_state_update_ref = selective_state_update

__all__ = ["selective_state_update", "selective_state_update_ref"]
