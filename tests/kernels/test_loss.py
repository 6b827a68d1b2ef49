"""Cross-entropy of rows and its gradient, against torch's in float64, on every vector path."""

import pytest
import torch
import torch.nn.functional as F

from hpcgnn.kernels import cross_entropy


@pytest.mark.parametrize("rows", [0, 1, 1300])
@pytest.mark.parametrize("width", [1, 8, 349])
@pytest.mark.parametrize("kernels", ["reference"], indirect=True)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_loss_and_gradient(kernels, dtype, width, rows):
    draw = torch.Generator().manual_seed(width + rows)
    whole = torch.randn(rows, width + 3, dtype=dtype, generator=draw) * 8
    x, labels = whole[:, 1:-2], torch.randint(width, (rows,), generator=draw)
    taken = torch.nonzero(torch.rand(rows, generator=draw) < 0.6).squeeze(1)
    close = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-13}
    for chosen in (None, taken):
        wanted = x.double().clone().requires_grad_()
        of = wanted if chosen is None else wanted[chosen]
        label = labels if chosen is None else labels[chosen]
        right = F.cross_entropy(of, label, reduction="sum")
        right.backward()
        gradient = torch.full((rows, width), 7, dtype=dtype)
        total = cross_entropy(gradient, x, chosen, label)
        # A loss near 0 is log(1 + little): one rounding of a sum near 1 for every row.
        near = {"rel": 1e-6, "abs": 1.2e-7 * len(of)} if dtype == torch.float32 else {"rel": 1e-13, "abs": 1e-12}
        assert total == pytest.approx(right.item(), **near)
        others = torch.ones(rows, dtype=torch.bool)
        others[slice(None) if chosen is None else chosen] = False
        torch.testing.assert_close(gradient[~others].double(), wanted.grad[~others], **close)
        assert (gradient[others] == 7).all(), "rows that are not listed are not touched"
        assert cross_entropy(None, x, chosen, label) == total


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
