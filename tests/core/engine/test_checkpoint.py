"""Checkpoints: restored values equal the saved ones, and a damaged checkpoint is noticed and passed over."""

import fcntl

import h5py
import pytest
import torch

from hpcgnn.__main__ import registry_choices
from hpcgnn.config import make_config
from hpcgnn.engine import checkpoint
from hpcgnn.engine.checkpoint import Checkpoint, check_identity
from hpcgnn.engine.optim import build_optimizer
from hpcgnn.errors import AccessError, CheckpointError, RunDirError, TrainingError
from hpcgnn.nn.registry import MODELS
from hpcgnn.nn.spec import ModelSpec
from hpcgnn.options import ModelConfig


def make(optimizer="adam", seed=0, hidden=5):
    """A model and its optimizer after three steps."""
    torch.manual_seed(seed)
    model = MODELS["gin"].build(ModelSpec(ModelConfig(model="gin", hidden=hidden, norm="batch"), 4, 3))
    optimizer = build_optimizer(model, make_config({"graph": "-", "optimizer": optimizer}, registry_choices()).optim)
    for _ in range(3):
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape)
        optimizer.step()
    return model, optimizer


def save(path, epoch, model, optimizer, best=None):
    return checkpoint.save_checkpoint(
        path, model, optimizer, best, {"epoch": epoch, "best": None, "identity": {"seed": 1}}
    )


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_round_trip(tmp_path, optimizer):
    model, trained = make(optimizer)
    best = {name: tensor + 1 for name, tensor in model.state_dict().items()}
    path = save(tmp_path, 7, model, trained, best)
    assert b"GCOL" not in path.read_bytes(), "no text of variable length"
    found = Checkpoint(path)
    assert found.progress == {"epoch": 7, "best": None, "identity": {"seed": 1}}
    other, fresh = make(optimizer, seed=1)
    checkpoint.restore(other, found.model)
    checkpoint.restore(fresh, found.optimizer)
    with pytest.raises(CheckpointError, match="do not fit"):
        checkpoint.restore(make(hidden=6)[0], found.model)
    for name, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor) and other.state_dict()[name].dtype == tensor.dtype
        assert torch.equal(found.best[name], best[name])
    for parameters in zip(model.parameters(), other.parameters()):
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
    trained.step(), fresh.step()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters())), (
        "the next step is the same, bit for bit"
    )


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("name", ["convs.1.first.bias", "norms.0.running_var"])
def test_what_is_not_finite_replaces_no_good_checkpoint(tmp_path, name, value):
    """Neither parameters nor buffers."""
    model, optimizer = make()
    good = save(tmp_path, 6, model, optimizer)
    model.state_dict()[name].view(-1)[1] = value
    with pytest.raises(TrainingError, match=rf"^{name} is not finite after epoch 7, .* --resume$"):
        save(tmp_path, 7, model, optimizer)
    assert checkpoint.checkpoints(tmp_path) == [good] and list((tmp_path / "checkpoints").iterdir()) == [good]


def names(run_dir):
    """Names of all files in the folder of the checkpoints."""
    return sorted(path.name for path in (run_dir / "checkpoints").iterdir())


def test_the_last_two_are_kept(tmp_path):
    """By number, and not by text; folders that killed runs have left go too."""
    for epoch in (1, 2, 999_999, 1_000_000):
        checkpoint.save_rank_state(tmp_path, epoch - 1, 0, {}, {})  # before the kill
        checkpoint.save_rank_state(tmp_path, epoch, 0, {}, {})
        newest = save(tmp_path, epoch, *make())
    assert names(tmp_path) == [f"epoch-{epoch}{end}" for epoch in (1_000_000, 999_999) for end in ("-ranks", ".h5")]
    assert Checkpoint.newest(tmp_path, print).path == newest


@pytest.mark.parametrize("epoch", [3, 5], ids=["before it", "after it"])
def test_a_damaged_one_is_not_kept_in_the_place_of_a_good_one(tmp_path, epoch):
    save(tmp_path, 2, *make())
    save(tmp_path, 4, *make()).write_bytes(b"")
    save(tmp_path, epoch, *make())
    assert names(tmp_path) == ["epoch-000002.h5", f"epoch-00000{epoch}.h5"]


def test_one_that_cannot_be_opened_now_is_neither_passed_over_nor_removed(tmp_path):
    save(tmp_path, 1, *make())
    newest = save(tmp_path, 2, *make())
    before = Checkpoint(newest)
    checkpoint.save_rank_state(tmp_path, 2, 0, {}, {})
    with open(newest) as held, open(checkpoint._rank_path(tmp_path, 2, 0)) as state:
        fcntl.flock(held, fcntl.LOCK_EX)  # as HDF5 does for a program that writes
        fcntl.flock(state, fcntl.LOCK_EX)
        with pytest.raises(AccessError, match="epoch-000002.h5 is open for writing in another program"):
            Checkpoint.newest(tmp_path, print)
        with pytest.raises(AccessError):
            before.rank_state(0, {})
        save(tmp_path, 3, *make())
    assert names(tmp_path) == ["epoch-000002-ranks", "epoch-000002.h5", "epoch-000003.h5"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "checkpoints").touch()
    with pytest.raises(AccessError, match="may not be read: Not a directory"):
        Checkpoint.newest(tmp_path / "other", print)


def test_any_flipped_byte_of_the_data_is_noticed_and_the_one_before_is_used(tmp_path):
    """HDF5's wrapper gives None for a tensor whose header is damaged; the TypeError of that once ended the run."""
    save(tmp_path, 1, *make())
    path = save(tmp_path, 2, *make())
    whole, said, good = path.read_bytes(), [], Checkpoint(path)
    for position in range(16, len(whole), len(whole) // 30):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
        newest = Checkpoint.newest(tmp_path, said.append)
        if newest.path == path:  # then the byte was not used
            for name in ("model", "best", "optimizer"):
                torch.testing.assert_close(getattr(newest, name), getattr(good, name), rtol=0, atol=0)
            assert newest.progress == good.progress
    assert said and "trying the one before" in said[0]
    path.write_bytes(whole[:-500])
    assert Checkpoint.newest(tmp_path, said.append).path.name == "epoch-000001.h5"


def test_none_and_none_readable(tmp_path):
    assert Checkpoint.newest(tmp_path, print) is None
    path = save(tmp_path, 1, *make())
    path.write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match="remove them"):
        Checkpoint.newest(tmp_path, lambda text: None)


def test_identity_names_what_differs():
    check_identity("p", {"seed": 1, "more": 2}, {"seed": 1})
    check_identity("p", {"seed": 1}, {"seed": 1, "kept": "None"})  # of an older version
    with pytest.raises(CheckpointError, match="seed is 1 there and 2 here"):
        check_identity("p", {"seed": 1}, {"seed": 2})


def test_an_unwritable_place_is_said(tmp_path):
    (tmp_path / "checkpoints").write_text("a file in the way")
    with pytest.raises(RunDirError, match="cannot write checkpoint"):
        save(tmp_path, 1, *make())


@pytest.mark.parametrize("kind", ["external link", "linked group", "claims"])
def test_what_lies_outside_the_file_is_refused(tmp_path, kind):
    """A checkpoint may come from somebody else."""
    path = save(tmp_path, 3, *make())
    secret = tmp_path / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["model/x"] = [1.0]
    with h5py.File(path, "r+", libver="latest") as file:
        name = next(iter(file["model"]))
        del file["model"][name]
        if kind == "external link":
            file["model"][name] = h5py.ExternalLink(str(secret), "model/x")
        elif kind == "linked group":
            del file["model"]
            file["model"] = h5py.ExternalLink(str(secret), "model")
        else:
            file["model"].create_dataset(name, (1 << 50,), "f4", chunks=(1 << 20,))
    with pytest.raises(CheckpointError, match="refused" if kind != "claims" else "more than a file"):
        Checkpoint(path)
