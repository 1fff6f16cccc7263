"""``python warm.py real_step|traced_step``: a worksheet a line, answered with its peaks.

Libraries are loaded once; each worksheet has a process of its own.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
import warnings


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    module = importlib.import_module(sys.argv[1])
    import peft  # noqa: F401, PLC0415
    import transformers.modeling_utils  # noqa: F401, PLC0415

    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                answer = module.peaks(json.loads(line))
            except BaseException:
                answer = {"crash": traceback.format_exc(limit=-6)}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            answers.write(json.dumps({"crash": f"ended with {os.waitstatus_to_exitcode(status)}"}) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
