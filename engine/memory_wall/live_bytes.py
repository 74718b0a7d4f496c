"""The peak of live tensor bytes, seen through torch's dispatch; on any device, fake ones too."""

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

# The operator that scaled_dot_product_attention turns into says which kernel ran.
BACKENDS = {
    "_scaled_dot_product_flash_attention_for_cpu": "flash (CPU)",
    "_scaled_dot_product_flash_attention": "flash",
    "_scaled_dot_product_efficient_attention": "memory-efficient",
    "_scaled_dot_product_cudnn_attention": "cuDNN",
    "_scaled_dot_product_fused_attention_overrideable": "overrideable",
    "_scaled_dot_product_attention_math_for_mps": "math (MPS)",
}


class OutOfMemory(MemoryError):
    """A tensor that the budget has no room for. It was not allocated, if asked for beforehand.

    needed_bytes: alive with it; allowed_bytes: the budget.
    """

    def __init__(self, needed_bytes: int, allowed_bytes: int) -> None:
        super().__init__(f"{needed_bytes:,} bytes of tensors at once, {allowed_bytes:,} allowed")
        self.needed_bytes = needed_bytes
        self.allowed_bytes = allowed_bytes


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all tensors made under it until they are freed: ``with LiveBytes() as live: ...``.

    A storage counts once, however many views it has or operations write into it, from the operation that
    makes it to its end. What a kernel takes for itself while it runs is no tensor and is not seen.

    allowed_bytes: a budget; crossing it raises ``OutOfMemory``.
    beforehand: refuse before the allocation, by asking each operation on fake tensors what it will make.
        That loads much of torch (about a second); who knows that the budget is wide can do without.
    """

    def __init__(self, allowed_bytes: int | None = None, *, beforehand: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0
        self.peak_bytes = 0
        self.backend: str | None = None
        self._allowed_bytes = allowed_bytes
        self._fake = FakeTensorMode() if beforehand and allowed_bytes is not None else None
        self._alive: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here; torch's guard against it loads the compiler, a second in each process."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        self.backend = BACKENDS.get(func._schema.name.removeprefix("aten::"), self.backend)
        if self._fake is not None:
            self._allow(self.bytes + self._asked(func, args, kwargs))
        made = func(*args, **kwargs)
        for storage in _made(made, (args, kwargs)):
            self._count(storage)
        self.peak_bytes = max(self.peak_bytes, self.bytes)
        self._allow(self.bytes)
        return made

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._alive:
            return

        def freed(_: weakref.ref[torch.UntypedStorage]) -> None:
            self.bytes -= size
            del self._alive[key]

        self._alive[key] = weakref.ref(storage, freed)
        self.bytes += size

    def _allow(self, needed: int) -> None:
        if self._allowed_bytes is not None and needed > self._allowed_bytes:
            raise OutOfMemory(needed, self._allowed_bytes)

    def _asked(self, func: Any, args: Any, kwargs: Any) -> int:
        """Bytes that an operation is about to make; 0 for one that will fail, or that has no fake twin."""
        assert self._fake is not None
        try:
            with self._fake as fake:
                given = tree_map_only(Tensor, fake.from_tensor, (args, kwargs))
                made = func(*given[0], **given[1])
                return sum(storage.nbytes() for storage in _made(made, given))
        except Exception:  # of any type: the operation itself comes next and says what is wrong with it
            return 0


def _made(outputs: Any, inputs: Any) -> Iterable[torch.UntypedStorage]:
    """The storages of outputs that are not those of inputs, each once."""
    old = {leaf.untyped_storage()._cdata for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor)}
    new = (leaf.untyped_storage() for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor))
    return {storage._cdata: storage for storage in new if storage._cdata not in old}.values()
