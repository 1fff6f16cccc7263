"""Pipeline stages: how many layers each has, and how many micro-batches wait in it for their backward."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=512)
def layers_per_stage(layers: int, stages: int, counts_ends: bool) -> tuple[int, ...]:
    """Layers of each stage, from the embedding on.

    ``layers / stages`` each, the first ones one more where that does not divide. ``counts_ends``: embedding and head count as a layer
    each, as torchtitan splits, and others where the layers alone do not divide: Llama-3.1-405B's 126 over 8 stages of 16.

    Args:
        layers: of the model
        stages: degree of the pipeline, at most ``layers``
        counts_ends: embedding and head are a layer each

    Returns:
        one entry a stage

    Source:
        Megatron-LM, core/transformer/transformer_block.py get_num_layers_to_build; torchtitan, distributed/pipeline_parallel.py
        generate_llm_fqn_per_model_part with input_weight and output_weight of 1; Megatron-LM, account_for_embedding_in_pipeline_split
        and account_for_loss_in_pipeline_split

    Valid:
        exact for equal stages; a split stated by hand to the framework is not known here

    >>> layers_per_stage(32, 4, False)
    (8, 8, 8, 8)
    >>> layers_per_stage(32, 4, True)
    (8, 9, 8, 7)
    >>> layers_per_stage(126, 8, True)
    (15, 16, 16, 16, 16, 16, 16, 15)
    """
    counts_ends = counts_ends and layers + 2 >= 2 * stages
    units = layers + 2 if counts_ends else layers
    found = [units // stages + (1 if stage < units % stages else 0) for stage in range(stages)]
    if counts_ends and stages > 1:
        found[0] -= 1
        found[-1] -= 1
    elif counts_ends:
        found[0] -= 2
    return tuple(found)


def micro_batches_in_flight(stages: int, stage: int, micro_batches: int) -> int:
    """Micro-batches whose activations a stage holds at once under 1F1B: ``min(stages - stage, micro_batches)``.

    The first stage has started one per stage when the first gradient arrives; the last goes backward at once.

    Args:
        stages: degree of the pipeline
        stage: from 0
        micro_batches: of one optimizer step (batch.accumulation)

    Returns:
        how many, that at work included

    Source:
        Narayanan et al. 2021, Megatron-LM, section 2.2.1; the default schedule of torchtitan, DeepSpeed and of Megatron without virtual
        stages

    Valid:
        exact for 1F1B. Interleaved with v parts per stage holds up to ``1 + (stages - 1) / (stages * v)`` times that of the first stage;
        GPipe holds all micro-batches

    >>> [micro_batches_in_flight(4, stage, 8) for stage in range(4)]
    [4, 3, 2, 1]
    """
    return min(stages - stage, micro_batches)
