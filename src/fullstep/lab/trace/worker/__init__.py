"""The worker of a trace: the only code that imports torch, transformers and peft. ``fullstep.lab.trace.front`` starts one per trace."""
