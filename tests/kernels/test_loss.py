"""Cross-entropy of large logits, and refused labels, on every vector path; test_tables.py has all other numbers."""

import pytest
import torch

from hpcgnn.kernels import cross_entropy


def test_large_logits_stay_finite_and_nan_stays(kernels):
    x = torch.tensor([[1e4, -1e4, 0.0], [-3e38, 3e38, 0.0], [0.0, torch.nan, 1.0], [0.0, torch.inf, 1.0]])
    gradient, label = torch.empty(4, 3), torch.tensor([0, 1, 0, 0])
    assert cross_entropy(gradient[:2], x[:2], None, label[:2]) == 0 and not gradient[:2].any()
    assert cross_entropy(gradient[:1], x[:1], None, label[1:2]) == 2e4
    assert gradient[0].tolist() == [1, -1, 0]
    again = x[:2].clone()
    assert cross_entropy(again, again, None, label[:2]) == 0 and not again.any(), "over the logits themselves"
    for row in (2, 3):
        total = cross_entropy(gradient, x, torch.tensor([row]), label[:1])
        assert total != total and gradient[row].isnan().all()


def test_wrong_arguments_are_refused(kernels):
    x, labels = torch.zeros(4, 3), torch.tensor([0, 2])
    for arguments, word in (
        ((None, x, None, labels), "labels: expected it for 4 num_rows, got 2"),
        ((torch.zeros(4, 3), x, torch.tensor([0, 4]), labels), r"labels\[1\]: expected row 4 in \[0, 4\)"),
        ((torch.zeros(4, 3), x, torch.tensor([-1, 1]), labels), r"labels\[0\]: expected row -1"),
        ((None, x, torch.tensor([0, 1]), labels + 1), r"labels\[1\]: .* label 3 in \[0, 3\)"),
        ((None, x, torch.tensor([0, 1]), labels - 1), r"labels\[0\]: .* label -1 in"),
        ((None, x[:, :0], torch.tensor([0, 1]), labels), "labels"),
    ):
        with pytest.raises(ValueError, match=word):
            cross_entropy(*arguments)
