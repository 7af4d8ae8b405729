"""Plan files: JSON with the memory that a plan is for and, for each pipeline stage, what it does to the layers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from isthmus_common.files import write_file

VERSION = 1
ACTIONS = ("recompute", "offload")


class PlanError(Exception):
    """A plan cannot be made, read or used; the message is one line."""


@dataclass(frozen=True)
class Stage:
    """The plan of some ranks.

    Attributes:
        ranks: those that run this part of the model.
        actions: ``{"0/model.layers.3": {"mlp": "recompute"}}``: of each layer that has some, by module; ``"."`` is
            the layer.
        optimizer: whether the states of the optimizer are on the host between its steps.
    """

    ranks: list[int]
    actions: dict[str, dict[str, str]]
    optimizer: bool = False


@dataclass(frozen=True)
class Plan:
    """A plan.

    Attributes:
        memory: bytes of a device that it was made for.
        stages: of the pipeline.
    """

    memory: int
    stages: list[Stage]

    def stage(self, rank: int) -> Stage:
        """Return the stage of a rank; a plan with one stage is for any number of ranks.

        Raises:
            PlanError: the plan has stages and none for this rank.
        """
        if len(self.stages) == 1:
            return self.stages[0]
        for stage in self.stages:
            if rank in stage.ranks:
                return stage
        known = sorted(rank for stage in self.stages for rank in stage.ranks)
        raise PlanError(f"the plan is for ranks {known[0]} to {known[-1]}, not for rank {rank}; plan again")


def write(path: Path, plan: Plan) -> None:
    """Write a plan.

    Raises:
        PlanError: the file cannot be written.
    """
    text = json.dumps({"version": VERSION, **asdict(plan)}, indent=1) + "\n"
    try:
        write_file(path, text.encode())
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}; give a file in a folder that exists") from None


def read(path: Path) -> Plan:
    """Read a plan.

    Raises:
        PlanError: there is no such file, or it is not a plan of this version.
    """
    try:
        found = json.loads(path.read_text())
        if found["version"] != VERSION:
            raise PlanError(f"{path}: a plan of version {found['version']}, not {VERSION}; plan again")
        stages = [
            Stage(list(map(int, each["ranks"])), each["actions"], bool(each["optimizer"]))
            for each in found["stages"]
        ]
        plan = Plan(int(found["memory"]), stages)
        names = {name for stage in stages for actions in stage.actions.values() for name in actions.values()}
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}; `isthmus plan recompute` writes a plan") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PlanError(f"{path}: not a plan ({error!r}); `isthmus plan recompute` writes one") from None
    if unknown := names - set(ACTIONS):
        raise PlanError(f"{path}: unknown action {sorted(unknown)[0]!r}; expected {', '.join(ACTIONS)}")
    return plan
