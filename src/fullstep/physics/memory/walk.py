"""Walk through one training step and note the worst moment of each instant, by what is alive then."""

from __future__ import annotations

from typing import NamedTuple

from fullstep.ledger import Instant
from fullstep.ledger.instants import At
from fullstep.physics.memory.landmarks import Counts, Landmark, landmarks
from fullstep.physics.memory.scene import BlockCosts, BlockPhase, Scene, kept_before
from fullstep.physics.memory.sharding import Reduction
from fullstep.physics.memory.tape import Profile


def walk_forward(scene: Scene, at: At, gradients: float) -> None:
    """Forward and loss of a micro-batch, with ``gradients`` [bytes] there already.

    At block i: what earlier blocks keep, the stream, the block's own forward peak, autocast's copies, gathered units (this and the next;
    FSDP2: this one twice, as parameters and as the flat buffer that they were copied from). Before block i FSDP2 holds the buffer of the
    unit before as well. At the loss: what all blocks keep, the head's forward peak, the root unit, FSDP2's last buffer.

    Source:
        torch.distributed.fsdp._fully_shard._fsdp_param_group, wait_for_unshard: the state of the all-gather before

    Valid:
        within 1 % of traces of FSDP2. The final norm's 16-bit input is held a moment too long (0.2 % of the loss)
    """
    marks, everything = landmarks(scene.shape.layers, scene.checkpointing, neighbours=scene.prefetches)
    for mark in marks:
        costs = scene.blocks[mark.kind]
        kept = kept_before(scene, mark.before) + scene.stream
        remembers = not mark.checkpointed and scene.checkpointing != "selective"
        work = costs.profile.forward_peak if remembers else costs.profile.forward_peak_unsaved
        copies = costs.copies + costs.adapter_copies + _alive_copies(scene, mark.before)
        following = _neighbour(scene, mark.position, 1)
        gathered = _copied_out(scene, mark) if scene.copies_out else _gathered(scene, costs, following)
        scene.note(
            at, f"block {scene.number(mark)}", gradients=gradients, activations=kept, temporaries=work + copies,
            gathered_parameters=gathered,
        )  # fmt: skip
        if scene.copies_out:
            before = _neighbour(scene, mark.position, -1)
            held = before.unit if before is not None else scene.root.unit
            scene.note(
                at, f"gathering of block {scene.number(mark)}", gradients=gradients, activations=kept,
                temporaries=_alive_copies(scene, mark.before), gathered_parameters=gathered + held,
            )  # fmt: skip
    copies = scene.root.copies + _alive_copies(scene, everything)
    kept = kept_before(scene, everything) + scene.stream + scene.root.head.norm_saved
    logits = scene.root.head.profile.forward_peak - scene.root.head.norm_saved
    gathered = scene.root.gathered + scene.gathered_whole + (_last_unit(scene) if scene.copies_out else 0)
    scene.note(
        at, "head", gradients=gradients, activations=kept, logits_and_loss=scene.root.head.making, temporaries=copies,
        gathered_parameters=gathered,
    )  # fmt: skip
    where: At = "loss" if at == "forward" else at
    scene.note(
        where, "loss", gradients=gradients, activations=kept, logits_and_loss=logits, temporaries=copies, gathered_parameters=gathered,
    )  # fmt: skip


class MicroBatch(NamedTuple):
    """Which one of a step, by what its backward meets and leaves."""

    gradients_exist: bool
    """an earlier one has left the gradients there already"""
    reduces: bool = True
    """its gradients are reduced over the ranks as they come; False: they pile up for the last one (no_sync)"""
    piled: bool = False
    """those that exist have piled up whole"""


def walk_backward(scene: Scene, micro_batch: MicroBatch) -> None:
    """Backward of a micro-batch.

    Noted are the loss's own backward, each landmark (recomputed where it is checkpointed) with the gradients made so far, the reduction
    of FSDP's units, and the embedding's gradient at the very end.

    Valid:
        within 0.1 % of traces of FSDP2 over 8, 2 x 4 and with no_sync
    """
    marks, everything = landmarks(scene.shape.layers, scene.checkpointing, neighbours=scene.prefetches)
    at: At = "backward"
    gradients_exist = micro_batch.gradients_exist
    resident = scene.gradients if gradients_exist else 0.0
    kept = kept_before(scene, everything)
    last = 0.0 if scene.gathered_whole else _last_unit(scene)
    profile = scene.root.head.profile
    made = profile.weight_gradient_at_peak
    if scene.copies_out and not scene.gathered_whole:
        scene.note(
            at, "gathering of the root", gradients=resident, activations=kept + scene.root.head.norm_saved,
            logits_and_loss=max(0.0, profile.saved - scene.root.head.norm_saved) + scene.root.held_outputs,
            gathered_parameters=scene.root.gathered + scene.root.unit, temporaries=_saved_copies(scene, everything) + scene.root.copies,
        )  # fmt: skip
    scene.note(
        at, "loss", gradients=resident + (0 if gradients_exist else made), activations=kept + scene.root.head.norm_saved,
        logits_and_loss=max(0.0, profile.backward_peak - made - scene.root.head.norm_saved) + scene.root.held_outputs,
        gathered_parameters=scene.root.gathered + scene.gathered_whole + (last if scene.prefetches else 0),
        temporaries=_saved_copies(scene, everything) + scene.root.copies + (made if gradients_exist else 0),
    )  # fmt: skip
    totals = {(kind, checkpointed): count for kind, checkpointed, count in everything}
    for mark in reversed(marks):
        _block_backward(scene, mark, totals, micro_batch)
    _end_of_backward(scene, everything, micro_batch)


def _end_of_backward(scene: Scene, everything: Counts, micro_batch: MicroBatch) -> None:
    """The embedding's gradient, and under FSDP the reduction of the root, whose own shards come into being only then."""
    root = scene.root
    waiting = root.embedding_gradient + (root.head_gradient if micro_batch.gradients_exist or scene.sharded else 0.0) + root.tied_sum
    gradients, held = _of_blocks(scene, [(kind, count) for kind, _, count in everything], micro_batch)
    if not micro_batch.gradients_exist and not scene.sharded:
        gradients = scene.gradients
    last = _in_flight(scene, _neighbour(scene, -1, 1), micro_batch)
    whole = waiting if scene.sharded else 0.0  # FSDP's gradients before they are divided
    scene.note(
        "backward", "embedding", gradients=gradients + whole, temporaries=scene.stream + waiting - whole + held + last,
        logits_and_loss=root.held_outputs, gathered_parameters=root.gathered,
    )  # fmt: skip
    if micro_batch.reduces and root.reduction.whole:
        _reduction(scene, "the root", root.reduction, Around(gradients, held, own=root.unit), micro_batch)


def _in_flight(scene: Scene, later: BlockCosts | None, micro_batch: MicroBatch) -> float:
    """The buffer of the unit that was reduced before, which FSDP2 holds until it reduces the next one."""
    if later is None or not (scene.copies_out and scene.prefetches and micro_batch.reduces):
        return 0.0
    return later.reduction.buffer


def _of_blocks(scene: Scene, done: list[tuple[int, int]], micro_batch: MicroBatch) -> tuple[float, float]:
    """Gradients that exist once these blocks (kind, how many) are done, and what is held beside them of the sums [bytes]."""
    sums = sum(scene.blocks[kind].reduction.sum_stays * count for kind, count in done) if micro_batch.reduces else 0.0
    if not micro_batch.gradients_exist:
        return sum(scene.blocks[kind].gradients_left * count for kind, count in done), sums
    if not (micro_batch.piled and micro_batch.reduces):
        return scene.gradients, sums
    units = [(scene.blocks[kind].reduction, count) for kind, count in done]
    return scene.gradients - sum((unit.piled - unit.part) * count for unit, count in units), sums


class Around(NamedTuple):
    """What is there besides while a unit is reduced, in bytes."""

    gradients: float
    temporaries: float
    activations: float = 0.0
    gathered: float = 0.0
    """without the unit itself"""
    own: float = 0.0
    """the unit itself, while its gradients are put together"""


def _reduction(scene: Scene, name: str, unit: Reduction, around: Around, micro_batch: MicroBatch) -> None:
    """The moments of one: the flat gradient is put together, handed over, and its part of the sum is there."""
    piled = unit.piled if micro_batch.piled else 0.0
    fresh = unit.whole if unit.is_flat or not piled else 0.0
    adds_up = unit.part if micro_batch.gradients_exist and not piled else 0.0
    stay = unit.part - adds_up - (0.0 if unit.is_flat else piled)  # views of FSDP1's flat gradient, which piled up, hold it a while longer
    lingering = unit.lingering * (unit.piled / unit.whole if piled else 1.0)
    for gradients, temporaries, gathered in (
        (unit.whole, unit.whole if unit.is_flat else 0.0, around.own),
        (fresh, unit.buffer, 0.0),
        (stay + lingering, unit.buffer + unit.summed + adds_up, 0.0),
    ):
        scene.note(
            "backward", f"reduction of {name}", gradients=around.gradients + gradients, temporaries=around.temporaries + temporaries,
            activations=around.activations, gathered_parameters=around.gathered + gathered, logits_and_loss=scene.root.held_outputs,
        )  # fmt: skip


def _block_backward(scene: Scene, mark: Landmark, totals: dict[tuple[int, bool], int], micro_batch: MicroBatch) -> None:
    costs = scene.blocks[mark.kind]
    done = [(kind, ck, count) for (kind, ck), count in _after(mark, totals).items()]
    gradients, held = _of_blocks(scene, [(kind, count) for kind, _, count in done], micro_batch)
    if scene.sharded or not micro_batch.gradients_exist:
        gradients += scene.root.gradients_left
    kept, retained = kept_before(scene, mark.before), 0.0
    if scene.retains_inputs:
        behind = sum(count for _, ck, count in done if ck)
        kept += scene.stream * behind
        retained = scene.stream * max(0, behind - 1)  # the last one is the gradient that comes in
    keeps, work, own = _work_of_backward(scene, costs.profile, checkpointed=mark.checkpointed)
    kept += keeps
    earlier, later = _neighbour(scene, mark.position, -1), _neighbour(scene, mark.position, 1)
    work += _saved_copies(scene, mark.before) + costs.copies + costs.adapter_copies
    work += _in_flight(scene, later, micro_batch)
    phase = BlockPhase(kept, retained, work)
    if sum(phase) > sum(scene.block_phase):
        scene.block_phase = phase
    kept += retained
    gathered = _gathered(scene, costs, earlier)
    if scene.gathered_whole:
        gathered -= sum(scene.blocks[kind].unit * count for kind, _, count in done)  # a unit is taken apart once its backward has ended
    made = 0.0 if micro_batch.gradients_exist else own.gradients
    scene.note(
        "backward", f"block {scene.number(mark)}", gradients=gradients + made, activations=kept + own.kept,
        temporaries=work - own.kept - made + held, gathered_parameters=gathered, logits_and_loss=scene.root.held_outputs,
    )  # fmt: skip
    if costs.reduction.whole and micro_batch.reduces and costs.profile.weight_gradient > 0:
        around = Around(gradients, scene.stream + held, kept, gathered - costs.unit, costs.unit)
        _reduction(scene, f"block {scene.number(mark)}", costs.reduction, around, micro_batch)


class _Own(NamedTuple):
    """What of a block's work in backward has a name of its own."""

    kept: float
    """activations since forward; what was made again is temporary"""
    gradients: float


def _work_of_backward(scene: Scene, profile: Profile, *, checkpointed: bool) -> tuple[float, float, _Own]:
    """(the block's input that checkpointing kept, most alive besides, what of that is what): run again and then backward, or at once."""
    if not checkpointed and scene.checkpointing != "selective":
        return 0.0, profile.backward_peak, _Own(profile.kept_at_peak, profile.weight_gradient_at_peak)
    keeps = scene.stream if checkpointed else 0.0
    back = profile.backward_peak + (profile.output if scene.reentrant else 0) - min(keeps, profile.kept_input)
    again = profile.forward_peak + scene.stream
    return keeps, max(again, back), _Own(0.0, profile.weight_gradient_at_peak if back > again else 0.0)


def _after(mark: Landmark, totals: dict[tuple[int, bool], int]) -> dict[tuple[int, bool], int]:
    left = dict(totals)
    for kind, checkpointed, count in mark.before:
        left[kind, checkpointed] -= count
    left[mark.kind, mark.checkpointed] -= 1
    return left


def _neighbour(scene: Scene, position: int, step: int) -> BlockCosts | None:
    at = position + step
    return scene.blocks[scene.shape.layers[at]] if 0 <= at < len(scene.shape.layers) else None


def _gathered(scene: Scene, costs: BlockCosts, neighbour: BlockCosts | None) -> float:
    if scene.gathered_whole:
        return scene.root.gathered + scene.gathered_whole
    ahead = neighbour.gathered if neighbour is not None and scene.prefetches else 0.0
    return scene.root.gathered + costs.gathered + ahead


def _copied_out(scene: Scene, mark: Landmark) -> float:
    """FSDP2's gathered parameters in forward: the root, blocks that stay, and this block with the flat buffer that it came in."""
    stay = sum(scene.blocks[kind].unit * count for kind, _, count in mark.before) if scene.gathered_whole else 0.0
    return scene.root.gathered + stay + 2 * scene.blocks[mark.kind].unit


def _last_unit(scene: Scene) -> float:
    return scene.blocks[scene.shape.layers[-1]].unit if scene.shape.layers else 0.0


def _alive_copies(scene: Scene, counts: Counts) -> float:
    """Copies of earlier blocks that are alive in forward."""
    if scene.caches_copies:
        return sum(scene.blocks[kind].copies * count for kind, _, count in counts)
    made_again = sum(scene.blocks[kind].adapter_copies * count for kind, checkpointed, count in counts if checkpointed)
    return _saved_copies(scene, counts) + made_again


def _saved_copies(scene: Scene, counts: Counts) -> float:
    """Autocast's copies that blocks without checkpointing keep for backward."""
    kept = [(scene.blocks[kind], count) for kind, checkpointed, count in counts if not checkpointed]
    return sum((costs.copies + costs.adapter_copies) * count for costs, count in kept)


def walk_step(scene: Scene, *, micro_batches: int, old_gradients: float) -> tuple[Instant, ...]:
    """The instants of the steady step, in order.

    Args:
        scene: one GPU's share
        micro_batches: in a step
        old_gradients: left from the step before while the first forward runs [bytes]

    Returns:
        forward, loss, backward, (second_forward,) optimizer_step, each at its worst moment
    """
    piles_up = scene.gradients > scene.step_gradients
    walk_forward(scene, "forward", old_gradients)
    walk_backward(scene, MicroBatch(scene.permanent_gradients, reduces=not piles_up))
    if micro_batches > 1:
        walk_forward(scene, "second_forward", scene.gradients)
        if piles_up and micro_batches > 2:
            walk_backward(scene, MicroBatch(gradients_exist=True, reduces=False, piled=True))
        walk_backward(scene, MicroBatch(gradients_exist=True, piled=piles_up))
    gradients = scene.step_gradients + scene.extra_step_gradients
    scene.note("optimizer_step", "optimizer", gradients=gradients, temporaries=scene.step_temporaries)
    order: tuple[At, ...] = ("forward", "loss", "backward", "second_forward", "optimizer_step")
    return tuple(instant for at in order if (instant := scene.instant(at)) is not None)
