"""Checkpoints: one safetensors file that holds all a run needs to go on. Never pickle.

The step and other numbers lie in the same file's header, so weights and step can never disagree.
Names: ``model.*`` weights; ``optimizer.<state>.<parameter>``; ``generator.*`` states of generators.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from engine.models.config import ModelConfig
from engine.models.transformer import Transformer
from engine.system import files
from engine.system.errors import InvalidInput


def save(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write a checkpoint in one step: a kill at any moment leaves the old one or the new one.

    Raises OSError: when it cannot be written (a full disk); the old one is still there.
    """
    metadata = {"lab": json.dumps(dict(header), allow_nan=False)}
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    files.write_bytes(path, safetensors.torch.save(contiguous, metadata=metadata))


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors, on the CPU, and the header.

    Raises InvalidInput: when the file is no whole checkpoint of this lab; OSError: when it cannot be read.
    """
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["lab"])
            return {name: file.get_tensor(name) for name in file.keys()}, header  # noqa: SIM118
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise InvalidInput(f"{path.name} is not a whole checkpoint of this lab: {error}.") from error


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Weights by name, a tied table once."""
    return {f"model.{name}": parameter for name, parameter in model.named_parameters()}


@torch.no_grad()
def restore_model(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy weights into a model of the same configuration; tied weights stay tied.

    Raises InvalidInput: when a weight is missing, left over or of another shape.
    """
    wanted = dict(model.named_parameters())
    stored = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    if wanted.keys() != stored.keys():
        odd = ", ".join(sorted(wanted.keys() ^ stored.keys()))
        raise InvalidInput(f"the weights do not fit the configuration; in one but not in the other: {odd}.")
    for name, parameter in wanted.items():
        if parameter.shape != stored[name].shape:
            raise InvalidInput(
                f"{name} has shape {tuple(stored[name].shape)}; the configuration gives "
                f"{tuple(parameter.shape)}."
            )
        parameter.copy_(stored[name])


def load_model(path: Path) -> tuple[Transformer, dict[str, Any]]:
    """The model of a checkpoint, in eval mode on the CPU, and the header.

    Raises InvalidInput, OSError: as ``load`` and ``restore_model``.
    """
    tensors, header = load(path)
    model = Transformer(ModelConfig.from_dict(header["config"]))
    restore_model(model, tensors)
    return model.eval(), header
