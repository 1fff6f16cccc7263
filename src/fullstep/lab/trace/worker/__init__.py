"""The worker of a trace: the only code that imports torch, transformers and peft. Started by ``fullstep.lab.trace.front``, once per trace."""
