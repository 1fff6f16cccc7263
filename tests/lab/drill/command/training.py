"""A training without torch: a state that depends on all that a checkpoint has to hold, and ways to lose a part of it."""

from __future__ import annotations

import json
import math
import os
import random
import sys
import time
from pathlib import Path


def main() -> None:
    steps, lost = int(sys.argv[1]), sys.argv[2]
    folder = Path(os.environ["CHECKPOINT_DIR"])
    draw = random.Random(folder.name if lost == "seed" else 7)  # each of the two trainings has a folder of its own
    state = {"step": 0, "weight": 5.0, "moment": 0.0}
    file = folder / "state.json"
    if file.exists() and lost != "everything":
        saved = json.loads(file.read_text())
        state.update(saved["state"])
        if lost == "moment":
            state["moment"] = 0.0
        if lost == "position":
            state["step"] += 1
        if lost != "rng":
            kind, keys, gauss = saved["rng"]
            draw.setstate((kind, tuple(keys), gauss))
        if lost == "crash":
            raise SystemExit("the checkpoint cannot be read")
    while state["step"] < steps:
        state["step"] += 1
        state["moment"] = 0.9 * state["moment"] + state["weight"] + draw.random()
        state["weight"] -= 0.01 * state["moment"]
        loss = 1.0 if lost == "constant" or (lost == "flat" and state["step"] > 4) else state["weight"] ** 2
        loss = math.nan if lost == "nan" and state["step"] > 4 else loss
        print(json.dumps({"step": state["step"], "loss": loss}))
        time.sleep(0.02)
        if state["step"] % 2 == 0:
            beside = folder / "state.tmp"
            beside.write_text(json.dumps({"state": state, "rng": draw.getstate()}))
            beside.replace(file)


if __name__ == "__main__":
    main()
