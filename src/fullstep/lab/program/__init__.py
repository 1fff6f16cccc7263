"""The program that a worksheet describes, of the real classes of torch, transformers and peft: what every experiment has in common."""
