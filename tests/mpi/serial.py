"""Training of one process by torch's own optimizers, which curves of several ranks are compared with."""

import torch


def serial_curve(value_of, parameters, epochs, lr, kind=torch.optim.Adam, weight_decay=0.0, clip_norm=0.0):
    """([loss of each epoch], the parameters after them). value_of(epoch, parameters): the loss; parameters: {name:
    tensor}, which stay as they are.
    """
    parameters = {name: tensor.detach().clone().requires_grad_() for name, tensor in parameters.items()}
    optimizer, losses = kind(parameters.values(), lr, weight_decay=weight_decay), []
    for epoch in range(epochs):
        value = value_of(epoch, parameters)
        optimizer.zero_grad()
        value.backward()
        if clip_norm:
            torch.nn.utils.clip_grad_norm_(parameters.values(), clip_norm)
        optimizer.step()
        losses.append(float(value.detach()))
    return losses, {name: tensor.detach() for name, tensor in parameters.items()}
