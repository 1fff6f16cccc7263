"""The whole state of a training as torch.distributed.checkpoint takes it, and back."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.optim import Optimizer

from fullstep.resume.digests import digest_of
from fullstep.resume.errors import LoadError
from fullstep.resume.rng import new_streams, rng_state, set_rng_state

LEFT_OUT = ("scheduler", "rng", "moments", "loader")
"""what a load can leave out on purpose, to prove that its absence shows"""
UNTOUCHED = "untouched"
"""what has not made a step yet: torch gives such an optimizer states in order to save them, as if it had made one"""
_HOW_IT_IS_COMPUTED = ("foreach", "fused", "capturable", "differentiable")
"""settings of an optimizer that belong to the machine, not to the training: the new process keeps its own"""
_ALL = "all"
_MOST_SHOWN = 5


class TrainingState:
    """Model, optimizer and all else that a training needs to go on.

    What is per rank is saved under the rank's own name: torch keeps one copy of what has the same name everywhere, whoever's it is.

    Args:
        model: as it is trained, wrapped or not; with frozen parameters, only what trains is saved
        optimizer: None: none
        parts: other things with ``state_dict`` and ``load_state_dict``, by name; those with ``same_on_all_ranks`` are saved once
        group: None: one process
    """

    def __init__(
        self, model: nn.Module, optimizer: Optimizer | None, parts: Mapping[str, Any], group: dist.ProcessGroup | None = None
    ) -> None:
        self.model, self.optimizer, self.parts = model, optimizer, dict(parts)
        self.rank: int = 0 if group is None else dist.get_rank(group)
        self.ranks: int = 1 if group is None else dist.get_world_size(group)
        self._options = StateDictOptions(ignore_frozen_params=any(not each.requires_grad for each in model.parameters()))

    @property
    def names(self) -> tuple[str, ...]:
        """Of the parts."""
        return ("model", *(("optimizer",) if self.optimizer is not None else ()), "rng", *sorted(self.parts))

    def to_save(self) -> dict[str, Any]:
        """Tensors are the live ones, not copies."""
        untouched = self._untouched
        state = self._tensors()
        if untouched:
            state[UNTOUCHED] = {"optimizer": b""}
        state["rng"] = {self._own: _packed(rng_state())}
        for name, part in self.parts.items():
            state[name] = {self._key(part): _packed(part.state_dict())}
        return state

    def to_compare(self) -> dict[str, Any]:
        """The same, with values in place of their packed form."""
        state = self._tensors()
        state["rng"] = {self._own: repr(_in_full(rng_state()))}
        for name, part in self.parts.items():
            state[name] = {self._key(part): repr(_in_full(part.state_dict()))}
        return state

    @property
    def _untouched(self) -> bool:
        return self.optimizer is not None and not self.optimizer.state

    def _tensors(self, to_fill: bool = False) -> dict[str, Any]:
        """Of the model and its optimizer, which is as before afterwards unless its new states are ``to_fill``."""
        untouched = self._untouched
        optimizers = [] if self.optimizer is None else [self.optimizer]
        gradients = self._taken_gradients() if untouched else {}  # where there are any, torch gives the optimizer no states
        try:
            model, optimizer = get_state_dict(self.model, optimizers, options=self._options)
        finally:
            for parameter, gradient in gradients.items():
                parameter.grad = gradient
            if untouched and not to_fill and self.optimizer is not None:
                self.optimizer.state.clear()
        return {"model": model, **({"optimizer": optimizer} if optimizers else {})}

    def _taken_gradients(self) -> dict[Tensor, Tensor]:
        taken = {each: each.grad for each in self.model.parameters() if each.grad is not None}
        for parameter in taken:
            parameter.grad = None
        return taken

    @property
    def _own(self) -> str:
        return f"rank{self.rank}"

    def _key(self, part: Any) -> str:
        """A scheduler is the same everywhere; a data loader is not, unless it says so."""
        same = getattr(part, "same_on_all_ranks", isinstance(part, torch.optim.lr_scheduler.LRScheduler))
        return _ALL if same else self._own

    def to_load(self, metadata: Metadata, ranks: int, groups: Sequence[Collection[str]] = ()) -> dict[str, Any]:
        """The state that a checkpoint fills; the live tensors are in it.

        Args:
            metadata: of the checkpoint
            ranks: that saved it
            groups: names of the parameters in each group of the optimizer that was saved

        Raises:
            LoadError: it holds something else than this training; nothing was changed
        """
        untouched = self._untouched
        state = self._tensors(to_fill=True)
        there = metadata.state_dict_metadata
        _leave_out_unused(state, there)
        faults = [*_faults_of_groups(state, groups), *_faults_of_tensors(state, metadata), *self._add_parts(state, there, ranks)]
        if not faults:
            return state
        if untouched and self.optimizer is not None:
            self.optimizer.state.clear()
        shown = "; ".join(faults[:_MOST_SHOWN]) + (f"; and {len(faults) - _MOST_SHOWN} more" if len(faults) > _MOST_SHOWN else "")
        raise LoadError(f"the checkpoint does not fit this training: {shown}", "Nothing was changed.")

    def _add_parts(self, state: dict[str, Any], there: Collection[str], ranks: int) -> list[str]:
        """All else that is to be filled. Returns what does not fit."""
        faults = []
        if ranks == self.ranks and f"rng.{self._own}" in there:  # a folder that something else wrote has none
            state["rng"] = {self._own: b""}
        if f"{UNTOUCHED}.optimizer" in there:
            state[UNTOUCHED] = {"optimizer": b""}
        for name, part in self.parts.items():
            key = self._key(part)
            if f"{name}.{key}" in there and (key == _ALL or ranks == self.ranks):
                state[name] = {key: b""}
            elif any(other.startswith(f"{name}.") for other in there):
                faults.append(f"{name} was saved for each of {ranks} ranks, and cannot be divided anew among {self.ranks}")
            else:
                faults.append(f"{name} is not in it")
        more = {name.partition(".")[0] for name in there} - {*self.names, UNTOUCHED}
        return faults + [f"{name} is in it, and this training has none" for name in sorted(more)]

    def apply(
        self, state: Mapping[str, Any], step: int | None, without: Collection[str] = ()
    ) -> Literal["restored", "new streams", "left out"]:
        """Puts what was loaded into its places, random numbers last. Returns what became of these.

        Args:
            state: as :meth:`to_load` gave it, filled
            step: of the checkpoint; None: something else wrote it, and where it has no random numbers these stay as they are
            without: parts that are left as they are
        """
        own = self._kept_settings()
        optimizers = [] if self.optimizer is None else [self.optimizer]
        options = StateDictOptions(ignore_frozen_params=self._options.ignore_frozen_params, strict=False)  # to_load was strict
        moments = state.get("optimizer", {})
        set_state_dict(self.model, optimizers, model_state_dict=state["model"], optim_state_dict=moments, options=options)
        for group, settings in zip(self.optimizer.param_groups if self.optimizer else (), own, strict=True):
            group.update(settings)
        if UNTOUCHED in state and self.optimizer is not None:
            self.optimizer.state.clear()
        if "moments" in without and self.optimizer is not None:
            _forget_moments(self.optimizer)
        for name, part in self.parts.items():
            if name not in without:
                part.load_state_dict(_unpacked(state[name][self._key(part)]))
        if "rng" in without:
            return "left out"
        if "rng" in state:
            set_rng_state(_unpacked(state["rng"][self._own]))
            return "restored"
        if step is None:
            return "left out"
        new_streams(step, self.rank, self.ranks)
        return "new streams"

    def _kept_settings(self) -> list[dict[str, Any]]:
        groups = self.optimizer.param_groups if self.optimizer is not None else []
        return [{name: group[name] for name in _HOW_IT_IS_COMPUTED if name in group} for group in groups]


def _leave_out_unused(state: dict[str, Any], there: Collection[str]) -> None:
    """A parameter that never had a gradient has no states in an optimizer, but torch has just given it some here."""
    states = state.get("optimizer", {}).get("state", {})
    saved = {name.removeprefix("optimizer.state.") for name in there if name.startswith("optimizer.state.")}
    for name in [name for name, values in states.items() if not any(f"{name}.{each}" in saved for each in values)]:
        del states[name]


def _faults_of_tensors(state: Mapping[str, Any], metadata: Metadata) -> list[str]:
    """Torch itself casts another dtype without a word, and overlooks what the checkpoint has besides."""
    mine = flatten_state_dict(dict(state))[0]
    theirs = {name: each for name, each in metadata.state_dict_metadata.items() if name.partition(".")[0] in state}
    faults = [f"{name} is not in it" for name in mine if name not in theirs]
    faults += [f"{name} is in it, and this training has none" for name in theirs if name not in mine]
    for name, value in mine.items():
        there = theirs.get(name)
        if not isinstance(value, Tensor) or not isinstance(there, TensorStorageMetadata):
            continue
        if value.is_meta:
            faults.append(f"{name} is on the meta device: fill the model before its checkpoint is loaded")
        elif there.size != value.shape:
            faults.append(f"{name} is {tuple(there.size)} in it, and {tuple(value.shape)} here")
        elif there.properties.dtype != value.dtype:
            faults.append(f"{name} is {there.properties.dtype} in it, and {value.dtype} here")
    return faults


def _faults_of_groups(state: Mapping[str, Any], saved: Sequence[Collection[str]]) -> list[str]:
    """Groups are found again by their parameters: torch leaves one that it does not find without its settings, and without a word."""
    mine = {frozenset(group["params"]) for group in state.get("optimizer", {}).get("param_groups", ())}
    theirs = {frozenset(group) for group in saved}
    if not saved or mine == theirs:
        return []
    here, there = frozenset().union(*mine), frozenset().union(*theirs)
    faults = [f"{name} was not in its optimizer, and is in this one" for name in sorted(here - there)]
    faults += [f"{name} was in its optimizer, and is not in this one" for name in sorted(there - here)]
    return faults or ["the optimizer's groups are divided otherwise"]


def _forget_moments(optimizer: Optimizer) -> None:
    for states in optimizer.state.values():
        for name, value in states.items():
            if isinstance(value, Tensor) and name != "step":
                value.zero_()


def _in_full(value: Any) -> Any:
    """The same with digests in place of tensors and arrays, of which a text shows but the ends.

    >>> _in_full({"b": (torch.zeros(2000),), "a": 1})[0], len(_in_full(torch.zeros(2000)))
    (('a', 1), 64)
    """
    if isinstance(value, Tensor):
        return digest_of(value)
    if hasattr(value, "tobytes") and hasattr(value, "dtype"):
        return str(value.dtype), value.shape, digest_of(value.tobytes())
    if isinstance(value, Mapping):
        return sorted(((str(key), _in_full(each)) for key, each in value.items()), key=lambda item: item[0])
    if isinstance(value, (list, tuple)):
        return [_in_full(each) for each in value]
    return value


def _packed(value: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


def _unpacked(data: bytes) -> Any:
    """Only what a verified or trusted checkpoint holds: it can run code, as torch's own metadata can."""
    return torch.load(io.BytesIO(data), weights_only=False)
