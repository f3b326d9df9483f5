"""Losses for imbalanced data, exact over micro-batches and GPUs.

Every loss is a function `(logits, target, *, …)` and a module with the same options; `make_loss`
makes one by name. Classes are always the last axis of `logits`.
"""

from softf1.losses._family import DiceFamilyOptions
from softf1.losses.asymmetric import AsymmetricLoss, asymmetric_loss
from softf1.losses.ce import CrossEntropyLoss, WeightedCrossEntropyLoss, cross_entropy_loss
from softf1.losses.compound import CompoundLoss
from softf1.losses.consistency import ConsistentLoss, consistency_loss
from softf1.losses.dice import DiceLoss, dice_loss
from softf1.losses.dsc import SelfAdjustingDiceLoss, self_adjusting_dice_loss
from softf1.losses.exact import WindowLoss, backward_exact
from softf1.losses.focal import FocalLoss, WeightedFocalLoss, focal_loss
from softf1.losses.la import LogitAdjustedLoss, logit_adjusted_loss
from softf1.losses.pauc import PartialAUCLoss, partial_auc_loss
from softf1.losses.registry import (
    LossFacts,
    compared_losses,
    loss_facts,
    loss_names,
    make_loss,
    register_loss,
)
from softf1.losses.smooth_ap import SmoothAPLoss, smooth_ap_loss
from softf1.losses.tversky import TverskyLoss, tversky_loss
from softf1.losses.weights import class_weights, prior_bias
from softf1.losses.zlpr import ZLPRLoss, zlpr_loss

__all__ = [
    "AsymmetricLoss",
    "CompoundLoss",
    "ConsistentLoss",
    "CrossEntropyLoss",
    "DiceFamilyOptions",
    "DiceLoss",
    "FocalLoss",
    "LogitAdjustedLoss",
    "LossFacts",
    "PartialAUCLoss",
    "SelfAdjustingDiceLoss",
    "SmoothAPLoss",
    "TverskyLoss",
    "WeightedCrossEntropyLoss",
    "WeightedFocalLoss",
    "WindowLoss",
    "ZLPRLoss",
    "asymmetric_loss",
    "backward_exact",
    "class_weights",
    "compared_losses",
    "consistency_loss",
    "cross_entropy_loss",
    "dice_loss",
    "focal_loss",
    "logit_adjusted_loss",
    "loss_facts",
    "loss_names",
    "make_loss",
    "partial_auc_loss",
    "prior_bias",
    "register_loss",
    "self_adjusting_dice_loss",
    "smooth_ap_loss",
    "tversky_loss",
    "zlpr_loss",
]
