"""What is committed speaks of the project alone."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEXT = {".py", ".md", ".toml", ".yaml", ".json", ".csv", ".jsonl", "", ".txt", ".html"}
ABSOLUTE = re.compile(r"""(?:^|[\s"'`(=])/(?:work|root|tmp|home/[a-z]+|Users)/\w""")
ELSEWHERE = re.compile(r"\.\./" + "shared" + r"|pypi" + r"\.org|files\.python" + r"hosted|registry\." + r"npmjs", re.IGNORECASE)


def committed() -> list[Path]:
    """Text files that git knows, or all of them where this is not a repository."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0 and done.stdout:
        paths = [ROOT / name for name in done.stdout.split("\0") if name]
    else:
        paths = [path for path in ROOT.rglob("*") if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)]
    return [path for path in paths if path.is_file() and path.suffix in TEXT and path != Path(__file__).resolve()]


def test_no_path_of_one_machine() -> None:
    found = {}
    for path in committed():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if ABSOLUTE.search(line) or ELSEWHERE.search(line):
                found[f"{path.relative_to(ROOT)}:{number}"] = line.strip()[:120]
    assert found == {}


def test_the_licence_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text and "Version 2.0, January 2004" in text and "END OF TERMS AND CONDITIONS" in text
