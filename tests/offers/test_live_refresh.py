"""Fetching: servers on this machine that are slow, broken, huge or silent, and a gpuhunt that hangs, each harm nobody but themselves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from fullstep.errors import InputError
from fullstep.offers.live import refresh as refreshing
from fullstep.offers.live.answers import FetchError, Parsed
from fullstep.offers.live.azure import fetch_azure
from fullstep.offers.live.gpuhunt_process import Workers
from fullstep.offers.live.refresh import Outcome, refresh
from fullstep.offers.live.runpod import fetch_runpod
from fullstep.offers.live.sources import LiveSource, Way, has_gpuhunt
from fullstep.offers.live.transport import Deadline, ask
from fullstep.offers.live.vast import fetch_vast
from fullstep.offers.saved import saved_folder, saved_offers

TODAY = date(2026, 11, 30)
Serve = Callable[[Callable[[BaseHTTPRequestHandler], None]], Any]
FAKE = '''
import os, pathlib, time
class Catalog:
    def __init__(self, balance_resources, auto_reload):
        assert not balance_resources and not auto_reload
    def load(self):
        pathlib.Path(os.environ["TOLD"]).write_text(str(os.getpid()))
        exec(os.environ.get("LOADING", ""))
    def query(self, provider, min_gpu_count):
        return [Item(provider[0])]
class Vendor:
    value = "nvidia"
class Item:
    location, price, cpu, memory, gpu_count, gpu_name, gpu_memory = "here", 55.04, 192, 2048.0, 8, "H100", 80.0
    spot, disk_size, flags, gpu_vendor, instance_name = False, None, [], Vendor, "p5.48xlarge"
    def __init__(self, provider):
        self.provider = provider
'''
"""a package that has of gpuhunt what is called, and does what the environment says while it loads"""


def body(text: bytes, code: int = 200) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        handler.end_headers()
        handler.wfile.write(text)

    return answer


def drips(handler: BaseHTTPRequestHandler) -> None:
    """A byte now and then, for ever: each one comes in time, the whole never."""
    handler.send_response(200)
    handler.end_headers()
    for _ in range(200):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.05)


def hangs(_: BaseHTTPRequestHandler) -> None:
    time.sleep(5)


def redirects(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(302)
    handler.send_header("Location", "ftp://127.0.0.1/")
    handler.end_headers()


@pytest.fixture
def gpuhunt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for gpuhunt; yields the file in which its process says its number."""
    package = tmp_path / "packages" / "gpuhunt"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(FAKE)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.setenv("TOLD", str(tmp_path / "told"))
    monkeypatch.delenv("GPUHUNT_CATALOG_DIR", raising=False)
    monkeypatch.syspath_prepend(str(package.parent))
    return tmp_path / "told"


def is_running(told: Path) -> bool:
    try:
        os.kill(int(told.read_text()), 0)
    except ProcessLookupError:
        return False
    return True


def use(monkeypatch: pytest.MonkeyPatch, **ways: Any) -> None:
    """These providers and no others, each with the ways that it has."""
    sources = {name: LiveSource((found,) if isinstance(found, Way) else found) for name, found in ways.items()}
    monkeypatch.setattr(refreshing, "live_sources", lambda: sources)


def vast_at(address: str) -> Way:
    return Way("vast", lambda _, deadline, today: fetch_vast(deadline, today, address))


def never(_: Workers, deadline: Deadline, __: date) -> Parsed:
    time.sleep(deadline.seconds + 3)
    raise AssertionError("nobody waits for this")


def breaks(*_: object) -> Parsed:
    raise ZeroDivisionError("\x1b[31moops")


def test_answers_of_servers(serve: Serve, fixtures: Path) -> None:
    with serve(body((fixtures / "synthetic_vast.json").read_bytes())) as address:
        assert len(fetch_vast(Deadline(5), TODAY, address).offers) == 3
    with serve(body((fixtures / "synthetic_runpod.json").read_bytes())) as address:
        assert len(fetch_runpod(Deadline(5), TODAY, address).offers) == 5


def test_pages_are_followed(serve: Serve, fixtures: Path) -> None:
    first, second = (json.loads((fixtures / f"synthetic_azure_{page}.json").read_text()) for page in (1, 2))

    def answer(handler: BaseHTTPRequestHandler) -> None:
        host = f"http://{handler.headers['Host']}"
        page = second if "skip" in handler.path else first | {"NextPageLink": f"{host}/prices?skip=1"}
        body(json.dumps(page).encode())(handler)

    with serve(answer) as address:
        assert len(fetch_azure(Deadline(5), TODAY, address).offers) == 2


def test_pages_without_end_have_one(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fullstep.offers.live.azure._MOST_PAGES", 3)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        body(json.dumps({"Items": [], "NextPageLink": f"http://{handler.headers['Host']}/again"}).encode())(handler)

    with serve(answer) as address, pytest.raises(FetchError, match="more than 3 pages"):
        fetch_azure(Deadline(5), TODAY, address)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (body(b"", 503), "HTTP 503"),
        (body(b"", 429), "HTTP 429"),
        (body(b"<html>"), "not JSON"),
        (drips, "no answer within 0.4 s"),
        (hangs, "no answer within 0.4 s"),
        (redirects, "redirected away"),
        (lambda handler: handler.wfile.write(b"nonsense\r\n\r\n"), "the connection broke"),
        (lambda handler: handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"), "before the end"),
    ],
)
def test_servers_that_do_not_answer(answer: Callable[[BaseHTTPRequestHandler], None], words: str, serve: Serve) -> None:
    begun = time.monotonic()
    with serve(answer) as address, pytest.raises(FetchError, match=words):
        fetch_vast(Deadline(0.4), TODAY, address)
    assert time.monotonic() - begun < 3


def test_an_answer_that_is_too_large(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fullstep.offers.live.transport.LARGEST_ANSWER_BYTES", 1000)
    with serve(body(b" " * 500_000)) as address, pytest.raises(FetchError, match="an answer of more than"):
        ask(address, Deadline(5))


def test_nobody_is_there() -> None:
    with pytest.raises(FetchError, match="no connection"):
        ask("http://127.0.0.1:1/", Deadline(5))


def test_one_bad_provider_harms_no_other(serve: Serve, fixtures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Outcome] = []
    with serve(body((fixtures / "synthetic_vast.json").read_bytes())) as good, serve(hangs) as slow, serve(body(b"[")) as garbage:
        use(monkeypatch, vast=vast_at(good), aws=vast_at(slow), gcp=vast_at(garbage), oci=Way("x", never), verda=Way("y", breaks))
        begun = time.monotonic()
        found = refresh(timeout_seconds=1, tell=told.append)
        assert time.monotonic() - begun < 4
    assert tuple(told) == found.outcomes and [outcome.provider for outcome in found.done] == ["vast"]
    reasons = {outcome.provider: outcome.reason for outcome in found.outcomes if outcome.state == "failed"}
    assert set(reasons) == {"aws", "gcp", "oci", "verda"}
    assert "no answer within" in reasons["aws"] and "not JSON" in reasons["gcp"] and "no answer within" in reasons["oci"]
    assert "ZeroDivisionError" in reasons["verda"] and "\x1b" not in reasons["verda"]
    assert {offer.provider for offer in saved_offers()} == {"vast"} and len(saved_offers()) == 3


def test_the_next_way_is_tried(serve: Serve, fixtures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(body(b"", 500)) as bad, serve(body((fixtures / "synthetic_vast.json").read_bytes())) as good:
        use(monkeypatch, vast=(vast_at(bad), Way("second", vast_at(good).fetch)))
        (outcome,) = refresh().done
    assert outcome.asked == "second" and "HTTP 500" in outcome.reason


def test_nothing_of_use_leaves_what_was_saved(serve: Serve, fixtures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(body((fixtures / "synthetic_vast.json").read_bytes())) as good:
        use(monkeypatch, vast=vast_at(good))
        refresh()
    with serve(body(b'{"offers": [{}, {}]}')) as empty:
        use(monkeypatch, vast=vast_at(empty))
        (outcome,) = refresh().outcomes
    assert outcome.state == "failed" and "no offer that can be used (2 cannot be read)" in outcome.reason
    assert len(saved_offers()) == 3


def test_a_folder_that_cannot_be_written(serve: Serve, fixtures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = saved_folder()
    assert folder is not None
    folder.parent.mkdir(parents=True)
    folder.write_text("a file")
    with serve(body((fixtures / "synthetic_vast.json").read_bytes())) as good:
        use(monkeypatch, vast=vast_at(good))
        (outcome,) = refresh().outcomes
    assert outcome.state == "failed" and "could not be saved" in outcome.reason


def test_what_cannot_be_asked_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fullstep.offers.live.sources.has_gpuhunt", lambda: False)
    (outcome,) = refresh(["crusoe"]).outcomes
    assert outcome.state == "failed" and "fullstep[live]" in outcome.reason
    monkeypatch.setattr("fullstep.offers.live.sources.has_gpuhunt", lambda: True)
    monkeypatch.delenv("CRUSOE_ACCESS_KEY", raising=False)
    (outcome,) = refresh(["crusoe"]).outcomes
    assert "CRUSOE_ACCESS_KEY" in outcome.reason


@pytest.mark.parametrize(
    ("names", "seconds", "words"),
    [(["vats"], 5, 'Did you mean "vast"?'), (["selectel"], 5, "machines.toml"), ([], 0, "1 to 600"), ([], float("nan"), "1 to 600")],
)
def test_wrong_questions(names: list[str], seconds: float, words: str) -> None:
    with pytest.raises(InputError, match=words.replace("?", r"\?")):
        refresh(names, seconds)


def test_no_folder_no_fetching(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FULLSTEP_CACHE", "off")
    with pytest.raises(InputError, match="FULLSTEP_CACHE"):
        refresh()


def test_gpuhunt_in_a_process_of_its_own(gpuhunt: Path) -> None:
    assert has_gpuhunt() and "gpuhunt" not in sys.modules
    (outcome,) = refresh(["aws"]).done
    assert (outcome.asked, outcome.offers) == ("gpuhunt", 1) and "gpuhunt" not in sys.modules
    (offer,) = saved_offers()
    assert (offer.name, offer.cards[0].key, offer.network_gbit_s) == ("aws here p5.48xlarge", "H100-SXM", 3200)
    assert not is_running(gpuhunt)


@pytest.mark.parametrize(
    ("loading", "words"),
    [
        ("raise OSError('no route')", "OSError: no route"),
        ("os._exit(7)", "code 7 and said nothing"),
        ("print('noise')", ""),
        ("time.sleep(60)", "no answer within"),
        ("import signal as s; s.signal(2, s.SIG_IGN); s.signal(15, s.SIG_IGN); time.sleep(60)", "no answer within"),
    ],
)
def test_gpuhunt_that_misbehaves(gpuhunt: Path, loading: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOADING", loading)
    (outcome,) = refresh(["aws"], timeout_seconds=2).outcomes
    assert words in outcome.reason and (outcome.state == "done") is (not words)
    assert not gpuhunt.exists() or not is_running(gpuhunt)


def test_ctrl_c_leaves_nothing_running(gpuhunt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOADING", "time.sleep(60)")
    code = "from fullstep.cli import main; raise SystemExit(main(['offers', 'refresh', '--provider', 'aws']))"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while not (gpuhunt.exists() and gpuhunt.read_text()):
            time.sleep(0.02)
        assert is_running(gpuhunt)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)
    assert process.returncode == 128 + signal.SIGINT and not is_running(gpuhunt)


def test_a_worker_ends_by_itself_where_nobody_ends_it(gpuhunt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOADING", "time.sleep(60)")
    command = [sys.executable, "-m", "fullstep.offers.live.gpuhunt_worker", "aws", "0.5"]
    done = subprocess.run(command, capture_output=True, timeout=10, check=False)
    assert done.returncode == 3 and done.stdout == b""


def test_the_real_gpuhunt(fixtures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the extra live: its own reader on a file in its own form."""
    pytest.importorskip("gpuhunt")
    (tmp_path / "aws.csv").write_text((fixtures / "synthetic_gpuhunt_aws.csv").read_text())
    monkeypatch.setenv("GPUHUNT_CATALOG_DIR", str(tmp_path))
    (outcome,) = refresh(["aws"]).done
    assert outcome.offers == 1 and dict(outcome.dropped) == {"card not in the catalogue": 1}
    (offer,) = saved_offers()
    assert offer.name == "aws us-east-1 p5.48xlarge" and offer.source.startswith("gpuhunt 0.")
