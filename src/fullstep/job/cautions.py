"""Codes of all cautions: things that are allowed, but that somebody should know before spending money.

Codes are given out here and nowhere else, so that each has one meaning and a place in docs/cautions.md: F001-F099 for the
worksheet, F100-F199 for memory, F200-F299 for planning,
F300-F399 for time.
"""

from __future__ import annotations

from typing import NamedTuple


class CautionKind(NamedTuple):
    """A title and an explanation for docs/cautions.md."""

    title: str
    explanation: str


CAUTIONS: dict[str, CautionKind] = {
    "F001": CautionKind(
        "A setting has no effect",
        "A key is stated that nothing reads under the other settings, for example an adapter's rank under full fine-tuning."
        " Take it out, or check the setting that makes it idle.",
    ),
    "F002": CautionKind(
        "Some targets are not modules of the model",
        "A list of target modules often covers several families of models. Names that this model does not have get no adapter.",
    ),
    "F003": CautionKind(
        "The card does not train bfloat16 in hardware",
        "Cards before compute capability 8.0 emulate bfloat16: it runs, slowly. Use float16, or another card.",
    ),
    "F004": CautionKind(
        "ZeRO-3 does not split a quantized base",
        "DeepSpeed partitions floating-point parameters; 4-bit and 8-bit weights of bitsandbytes and GPTQ stay whole on every GPU."
        " FSDP can split 4-bit weights.",
    ),
    "F005": CautionKind(
        "Nothing is offloaded under this strategy",
        "DeepSpeed reads offload_param at stage 3 only; without ZeRO or FSDP nothing moves parameters or optimizer states to host"
        " memory. The setting does nothing, and counts as not set.",
    ),
    "F006": CautionKind(
        "The card has no flash attention kernel",
        "FlashAttention needs compute capability 8.0 or newer (or its vendor's own build). Use sdpa.",
    ),
    "F007": CautionKind(
        "FSDP offloads parameters together with optimizer states",
        "PyTorch's CPU offload of FSDP moves sharded parameters, gradients and states together; states alone cannot be moved.",
    ),
    "F008": CautionKind(
        "Prefix tuning and activation checkpointing do not go together",
        "peft refuses prefix tuning for a model with gradient checkpointing, because the prefix lives in the key/value cache.",
    ),
    "F009": CautionKind(
        "The memory of the card is not published",
        "Nobody published what the driver reports for this card; its marketing size read as 10^9 bytes stands in."
        " State machine.gpu_memory_gib as nvidia-smi shows it.",
    ),
    "F010": CautionKind(
        "The formulas cover only a part of the model",
        "Of a vision-language or audio model only the language part is sized.",
    ),
    "F011": CautionKind(
        "Rows are longer than the model's positions",
        "The configuration states a maximum position below batch.sequence_tokens; training beyond it needs changed positions.",
    ),
    "F012": CautionKind(
        "Products are computed in the dtype of the weights",
        "Without sharded parameters nothing but autocast converts float32 weights to the compute dtype: under ZeRO-1 and ZeRO-2"
        " products are then float32, several times slower. DeepSpeed's bf16 mode holds bfloat16 weights beside float32"
        " master weights: state precision.weights = bfloat16. Or set precision.autocast = true.",
    ),
    "F100": CautionKind(
        "Logits and loss are the peak",
        "Tokens times vocabulary, two to four times over in float32, are often the largest tensors of a step, also of small models."
        " A fused linear cross entropy (step.loss = fused) never makes them; a chunked or in-place one makes fewer.",
    ),
    "F101": CautionKind(
        "The longest row decides",
        "Padded rows make a step as large as its longest row. Size for the configured length, and run the longest rows first.",
    ),
    "F102": CautionKind(
        "Adapters on stacked experts make whole parameters",
        "transformers 5 keeps all experts of a block in one parameter. peft adapts it by adding the adapter's product to it: a second"
        " copy of all experts of the block, kept until backward. Adapt attention only (method.targets) or recompute"
        " (step.activation_checkpointing), which leaves one block's copy at a time. peft takes no dropout there.",
    ),
    "F103": CautionKind(
        "The experts are not quantized",
        "transformers 5 keeps all experts of a block in one parameter, which the 4-bit and 8-bit layers of bitsandbytes do not replace."
        " The experts, most of the model, stay in the weights' dtype, and peft's prepare_model_for_kbit_training makes them float32."
        " Earlier versions had one module per expert: state step.framework_version, or use a checkpoint in a quantized format.",
    ),
    "F104": CautionKind(
        "Attention keeps whole score matrices",
        "Where sdpa has no fused kernel (classes without an sdpa path, ALiBi, or float32 with grouped keys) scores and their softmax are"
        " kept: rows x heads x length x length. Flash attention keeps none of them.",
    ),
    "F105": CautionKind(
        "Degrees of this framework were not checked",
        "Tensor ranks by the plans of transformers equal traces, Megatron's tensor, pipeline and context ranks published peaks. Other code"
        " (torchtitan, DeepSpeed, torch's own context ranks, dealt-out experts) is sized from its source alone: bounds are wider. Probe one"
        " step before you rely on a tight fit.",
    ),
    "F106": CautionKind(
        "A pipeline is taken to run 1F1B",
        "Under one-forward-one-backward a stage holds as many micro-batches as stages follow it, itself included. GPipe holds all"
        " micro-batches of a step; interleaved schedules hold up to a whole stage more. Every stage has equally many layers;"
        " torchtitan, and layers that do not divide, count embedding and head as a layer each.",
    ),
    "F107": CautionKind(
        "Experts are taken to be used evenly",
        "Where experts are dealt out over ranks, a rank receives the tokens that chose its experts. Early in a fine-tuning on new data"
        " routing can be lopsided: twice the tokens are twice the activations of the experts.",
    ),
    "F108": CautionKind(
        "A preference objective is sized as plain fine-tuning",
        "Its pairs of rows, the forward pass of a reference model and the logits that both keep are not modelled: state the rows of a pair"
        " as two rows (batch.micro_batch), and leave room for the reference model's weights.",
    ),
    "F120": CautionKind(
        "The traced step runs out of memory",
        "Every request of the traced step was replayed through a model of the caching allocator on this card. One of them found no room,"
        " even after cached blocks were given back. Where what is allocated would just fit, fragmentation decides: step.expandable_segments"
        " = true leaves less of it.",
    ),
    "F121": CautionKind(
        "A library's version was not tested",
        "The trace changes libraries in a few named places, so that a step runs on fake tensors as it would on CUDA. Their self-tests"
        " passed with the versions that are named; with others the figures may be off without a sign. Install those to be sure.",
    ),
    "F122": CautionKind(
        "Every block was traced",
        "Equal blocks are traced a few times and their events repeated, which gives the same bytes. Here neighbours did not behave alike,"
        " so the whole model was traced instead: the figures are as good, it only took longer.",
    ),
    "F123": CautionKind(
        "Another version of the classes was traced",
        "The trace runs the classes of the installed transformers. Of older ones it knows the loss and the recomputation, and makes them"
        " so; other differences it does not see. Install the version that you train with to be sure.",
    ),
    "F124": CautionKind(
        "The trace lies outside the estimate's bounds",
        "The trace counts what the installed class does and outranks the formulas; the table shows where they part. Often the class does"
        " otherwise in another version than the one that the formulas describe. If you rely on the estimate for this model, report it.",
    ),
    "F125": CautionKind(
        "Classes of transformers were traced in the place of a framework's own",
        "torchtune, torchtitan, litgpt and Megatron have model classes of their own, which keep other tensors for backward. The trace shows"
        " the class of transformers; the formulas know habits of these frameworks and may be nearer.",
    ),
    "F126": CautionKind(
        "A near record lies outside of its own estimate's bounds",
        "A probe of a near worksheet measured more or less than the bounds of its own estimate allow. It narrows nothing here, since nobody"
        " knows what it would narrow: a mechanism is missing in the formulas, or the record ran something else than it says."
        " fullstep evidence compare RECORD shows at which instant they part. Trust this worksheet's bounds less.",
    ),
    "F200": CautionKind(
        "An option of the plan was not traced",
        "fullstep plan --trace traces the best options before they are shown. What cannot be traced stays estimated by the formulas,"
        " and the reason stands beside it.",
    ),
    "F201": CautionKind(
        "Storage writes too slowly for the checkpoints",
        "A checkpoint has to be written within checkpoint.write_within_minutes: its bytes over that time is the rate that storage has to"
        " keep up, of all nodes that write together. Buy storage of that rate, allow more time, or save asynchronously, so that training"
        " goes on meanwhile. See checkpoints.md.",
    ),
    "F202": CautionKind(
        "Storage reads too slowly for a restart",
        "After a failure every rank reads its part of the checkpoint, and whole replicas all of it, within"
        " checkpoint.restore_within_minutes. Training stands still until then. See checkpoints.md.",
    ),
    "F203": CautionKind(
        "The disk is too small for the checkpoints",
        "A checkpoint may only be deleted once the next one is complete: checkpoint.keep of them, the one that is being written and the"
        " final model have to lie on the disk together. A disk that runs full ends the run at a save. Set checkpoint.keep lower, or take a"
        " larger disk.",
    ),
    "F204": CautionKind(
        "Asynchronous saves cannot hold the limit of lost work",
        "The newest whole checkpoint of asynchronous saves is older by the time of an upload, and only one save is under way at a time."
        " Where an upload takes more than half of checkpoint.lose_at_most_minutes, a failure can cost more than that: take faster storage,"
        " or another limit.",
    ),
    "F300": CautionKind(
        "The measured step is faster than the card",
        "A pilot's time of a step would need more arithmetic than the card can do: it was measured of another worksheet, or of one of"
        " several micro-batches. The answer uses it as stated.",
    ),
}
"""code -> what it means"""
