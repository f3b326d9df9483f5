"""Which operations of torch ran, and which of them add up in any order on a GPU."""

import re

from torch.utils._python_dispatch import TorchDispatchMode

UNORDERED = re.compile(
    # What torch.use_deterministic_algorithms lists as having no deterministic form, ...
    r"cumsum|put_?$|histc|bincount|median|kthvalue|ctc_loss|nll_loss2d|embedding_bag|grid_sampler"
    r"|upsample|interpolate|reflection_pad|avg_pool|max_pool|max_unpool|scatter_reduce"
    # ... and what it does not list: on a GPU, its order depends on which thread is first.
    r"|embedding_dense_backward"
)


class Recorder(TorchDispatchMode):
    """Context that remembers the names of all operations of torch, `aten::add` as `add`."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        del types
        self.names.add(operation.name().partition("::")[2].partition(".")[0])
        return operation(*args, **(kwargs or {}))

    def unordered(self):
        """The operations whose sums have no fixed order on a GPU."""
        return {name for name in self.names if UNORDERED.search(name) and name != "index_put"}
