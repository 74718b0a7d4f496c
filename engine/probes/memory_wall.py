"""Bytes of attention without allocating them: see ``engine/memory_wall/predict.py``."""

from collections.abc import Sequence

from engine.memory_wall import predict
from engine.memory_wall.plan import Task
from engine.memory_wall.predictions import Predictions
from engine.memory_wall.setting import Setting
from engine.system.errors import InvalidInput


def predictions(
    setting: Setting,
    tasks: Sequence[Task] = (),
    device: str = "cpu",
    cards_gb: Sequence[float] = (),
    implementations: Sequence[str] = (),
) -> Predictions:
    """Bytes of each task, and the longest n of these implementations on cards of so many GB.

    Raises InvalidInput: when an argument is out of range, or a layer has more bytes than 64 bits count.
    """
    try:
        return predict.predictions(setting, tasks, device, cards_gb, implementations)
    except OverflowError as error:
        raise InvalidInput(str(error)) from error
