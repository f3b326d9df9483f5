"""For Lightning: a module whose steps are exact over micro-batches and processes.

Lightning takes the mean over micro-batches (`accumulate_grad_batches`) and over processes. For a
ratio of sums that gives a different loss, and for any mean too, if the batches have different
numbers of labels. The mixin collects the micro-batches of a step and runs two passes over them
(`backward_exact`), with Lightning's manual optimization.

Works with `lightning` and `pytorch_lightning` alike: it imports neither.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn

from softf1.losses import ConsistentLoss, WindowLoss, backward_exact
from softf1.options import check_options, option_types
from softf1.recipe import TrainSection
from softf1.training.adversarial import perturb_embeddings, trace_embeddings


class ExactLossMixin:
    """Goes before `LightningModule`: `class Tagger(ExactLossMixin, LightningModule)`.

    A module sets `window` and defines `predict_batch`; the mixin defines `training_step`. It also
    clips gradients, since Lightning does not in manual optimization. Schedulers step after each
    optimizer step, whatever their interval.

    Attributes:
        window: `WindowLoss(make_loss(…))`.
        accumulate: Micro-batches per step; the last step of an epoch takes those that are left.
        clip: The largest norm of the gradient; None does not clip.
        adversarial: Size ε of an adversarial step on the word embeddings, as a norm (a recipe's
            `train.adversarial`): 0.5 for encoders of the BERT family. The module, or one inside
            it, needs `get_input_embeddings()`, which every model of transformers has.
        adversarial_relative: The same in units of the average norm of the embedding rows, instead
            of `adversarial`: 0.5 suits encoders of any scale, and is what `auto` uses.
        consistency: Factor κ of the consistency term: `predict_batch` is called twice, with
            different dropout, and differences between the two predictions are penalised. You can
            change it between steps; `window` and checkpoints do not depend on it.
    """

    window: WindowLoss
    accumulate: int = 1
    clip: float | None = None
    adversarial: float = 0.0
    adversarial_relative: float = 0.0
    consistency: float = 0.0

    # LightningModule has these.
    automatic_optimization: bool
    trainer: Any
    log: Callable[..., None]
    optimizers: Callable[[], Any]
    lr_schedulers: Callable[[], Any]
    manual_backward: Callable[[Tensor], None]
    clip_gradients: Callable[..., None]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.automatic_optimization = False
        self._micro_batches: list[Any] = []
        self._consistent: tuple[Any, ...] = ()

    def predict_batch(self, batch: Any) -> tuple[Tensor, ...]:
        """Returns `(logits, target)` or `(logits, target, mask)` of a batch; override it."""
        raise NotImplementedError("wanted predict_batch(batch), which gives (logits, target)")

    def training_step(self, batch: Any, batch_idx: int) -> None:  # noqa: ARG002
        """Collects the micro-batch, and takes a step once there are enough."""
        self._micro_batches.append(batch)
        if len(self._micro_batches) >= self.accumulate or self.trainer.is_last_batch:
            value = self._step(self._micro_batches)
            self._micro_batches = []
            self.log("train_loss", value)

    def _step(self, micro_batches: list[Any]) -> Tensor:
        optimizer = self.optimizers()
        if isinstance(optimizer, list):
            raise TypeError(f"wanted one optimizer, got {len(optimizer)}")
        epsilon, relative = self._find_size()
        optimizer.zero_grad()
        if not epsilon:
            value = self._backward(micro_batches)
        else:
            module = cast("nn.Module", self)
            with trace_embeddings(module) as traced:
                value = self._backward(micro_batches)
            gradient, window = traced[0] if traced else None, self._training_window()
            running = window.get_extra_state()
            with perturb_embeddings(module, epsilon, relative=relative, gradient=gradient):
                self._backward(micro_batches)
            window.set_extra_state(running)  # the average is over clean passes only
        if self.clip is not None:
            self.clip_gradients(
                optimizer, gradient_clip_val=self.clip, gradient_clip_algorithm="norm"
            )
        optimizer.step()
        self._advance()
        return value

    def _find_size(self) -> tuple[float, bool]:
        """Checks the options; returns the size of the adversarial step, and if it is relative."""
        epsilon, relative = self.adversarial, self.adversarial_relative
        given = {"adversarial": epsilon, "adversarial_relative": relative}
        given["consistency"] = self.consistency
        check_options(given, option_types(TrainSection), owner=type(self).__name__)
        TrainSection(adversarial=epsilon, adversarial_relative=relative)  # refuses both sizes
        return epsilon or relative, bool(relative)

    def _backward(self, micro_batches: list[Any]) -> Tensor:
        return backward_exact(
            self._training_window(),
            self._predict_twice if self.consistency else self.predict_batch,
            micro_batches,
            backward=self.manual_backward,
            no_sync=self._no_sync,
        )

    def _training_window(self) -> WindowLoss:
        """Returns `window`, or with consistency one that has its term, over the same loss.

        That one is kept in a tuple, where torch does not see it: the keys of the state dict are the
        same with and without consistency, and `window` stays as you set it. Its running statistics
        are not saved; the first step after a restart collects them again.
        """
        plain, made_for = self.window, (self.window, self.consistency)
        if not self.consistency:
            return plain
        if self._consistent[:-1] != made_for:
            loss = ConsistentLoss(plain.loss, self.consistency)
            how: Any = {"statistics": plain.statistics, "decay": plain.decay, "group": plain.group}
            self._consistent = (*made_for, WindowLoss(loss, **how))
        window: WindowLoss = self._consistent[-1]
        return window

    def _predict_twice(self, batch: Any) -> tuple[Tensor, ...]:
        (first, *rest), (second, *_) = self.predict_batch(batch), self.predict_batch(batch)
        return torch.cat([first, second]), *rest

    def _advance(self) -> None:
        schedulers = self.lr_schedulers() or []
        for scheduler in schedulers if isinstance(schedulers, list) else [schedulers]:
            scheduler.step()
        getattr(self.window.loss, "advance", lambda: None)()

    def _no_sync(self) -> AbstractContextManager[Any]:
        """Does not synchronise gradients before the last micro-batch."""
        strategy = self.trainer.strategy
        if not hasattr(strategy, "block_backward_sync"):  # one process
            return nullcontext()
        blocked: AbstractContextManager[Any] = strategy.block_backward_sync()
        return blocked
