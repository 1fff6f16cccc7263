"""What watching costs a training, in one run: `make bench-probe`. On a GPU, where there is one, else on processors.

The same training runs bare and under `fullstep probe -- CMD`, one after the other, round by round, the order turned each time. It times its
own steps, until the device has done all of each; ratios of medians count, seconds are this machine's.

    python benchmarks/probe.py [--rounds 5] [--steps 100]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

_LEFT_OUT = 10
"""first steps, in which kernels are chosen and memory is asked for"""
_GPU, _PROCESSOR = (1024, 8, 4, 1024), (128, 4, 2, 64)
"""width, layers, rows, tokens: a step of some tens of milliseconds"""
_WANTED = 1.01


def main() -> None:
    """Runs the rounds, or is the training."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        sys.stdout.write(f"{_train(options.steps)!r}\n")
        return
    training = [sys.executable, str(Path(__file__).resolve()), "--train", "--steps", str(options.steps)]
    watched = [str(Path(sys.executable).with_name("fullstep")), "probe", "--show-output", "--", *training]
    bare: list[float] = []
    seen: list[float] = []
    for number in range(options.rounds):
        pair = [(bare, training), (seen, watched)]
        for found, command in pair if number % 2 == 0 else reversed(pair):
            found.append(_median_seconds(command))
        sys.stderr.write(f"round {number + 1} of {options.rounds}: {seen[-1] / bare[-1]:.4f}\n")
    ratios = sorted(one / other for one, other in zip(seen, bare, strict=True))
    sys.stdout.write(
        f"a step of {median(bare) * 1e3:.2f} ms takes {median(ratios):.4f} times as long under a probe "
        f"({ratios[0]:.4f} to {ratios[-1]:.4f}); wanted on a GPU: {_WANTED} at most\n"
    )


def _median_seconds(command: list[str]) -> float:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    for line in done.stdout.splitlines():
        try:
            return float(line)
        except ValueError:
            continue
    raise SystemExit(f"{' '.join(command)} printed no time:\n{done.stdout[-2000:]}")


def _train(steps: int) -> float:
    """Median seconds of a step of a small transformer."""
    import torch  # noqa: PLC0415 - not needed by the front

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)
    width, layers, rows, tokens = _GPU if device == "cuda" else _PROCESSOR
    layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    seconds = []
    for _ in range(_LEFT_OUT + steps):
        begun = time.perf_counter()
        row = torch.randn(rows, tokens, width, device=device)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = model(row).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
    return median(seconds[_LEFT_OUT:])


if __name__ == "__main__":
    main()
