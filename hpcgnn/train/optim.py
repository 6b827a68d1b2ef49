"""The optimizer, and the learning rate as a pure function of the epoch (so that resuming needs no scheduler state)."""

import math

import torch


def build_optimizer(model, options):
    """torch's Adam, AdamW or SGD with weight decay on all parameters or on those of the first convolution. options:
    OptimConfig.
    """
    first = list(model.convs[0].parameters())
    in_first = {id(p) for p in first}
    rest = [p for p in model.parameters() if id(p) not in in_first]
    decay_rest = options.weight_decay if options.weight_decay_layers == "all" else 0.0
    groups = [{"params": first, "weight_decay": options.weight_decay}]
    if rest:
        groups.append({"params": rest, "weight_decay": decay_rest})
    if options.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=options.lr, momentum=options.momentum, fused=True)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[options.optimizer]
    return kind(groups, lr=options.lr, fused=True)


def learning_rate(epoch, options):
    """The learning rate of an epoch (from 0). options: OptimConfig."""
    if epoch < options.warmup_epochs:
        return options.lr * (epoch + 1) / options.warmup_epochs
    progress = (epoch - options.warmup_epochs) / max(1, options.epochs - options.warmup_epochs)
    return (
        options.lr
        * {
            "constant": lambda: 1.0,
            "cosine": lambda: 0.5 * (1 + math.cos(math.pi * progress)),
            "linear": lambda: 1.0 - progress,
            "step": lambda: options.lr_step_factor ** ((epoch - options.warmup_epochs) // options.lr_step_epochs),
        }[options.lr_schedule]()
    )


def set_learning_rate(optimizer, rate):
    for group in optimizer.param_groups:
        group["lr"] = rate
