"""Servers on the loopback that refuse, know another model, or are not there."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from evoseek.assembly.sources import load_settings
from evoseek.cli.doctor.checks import DoctorContext
from evoseek.cli.doctor.services import check_services

SECRET = "s3cr3t-k3y"


class Endpoint(BaseHTTPRequestHandler):
    """An OpenAI-compatible list of models, for those who have the key."""

    def do_GET(self):
        known = self.headers.get("Authorization") == f"Bearer {SECRET}"
        body = json.dumps({"data": [{"id": "qwen"}]} if known else {"error": "no key"}).encode()
        self.send_response(200 if known and self.path == "/v1/models" else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def url():
    server = HTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def asked(monkeypatch):
    """`asked({settings})`: what is found; the key is set, and never told."""
    monkeypatch.setenv("EVOSEEK_TEST_KEY", SECRET)
    monkeypatch.delenv("EVOSEEK_NO_KEY", raising=False)
    monkeypatch.delenv("SERPER_API_KEY", raising=False)

    def examined(options, system="search-r1"):
        diagnoses = list(check_services(DoctorContext(load_settings(system=system, options=options))))
        assert SECRET not in str(diagnoses)
        (diagnosis,) = [
            diagnosis for diagnosis in diagnoses if diagnosis.about in ("answerer", "search.url", "web.provider")
        ]
        return diagnosis

    return examined


def test_an_endpoint_that_answers_and_has_the_model(asked, url):
    diagnosis = asked({"answerer.base_url": url, "answerer.model": "qwen", "answerer.api_key_env": "EVOSEEK_TEST_KEY"})
    assert (diagnosis.state, diagnosis.words) == ("ok", f"{url} answers and has qwen")


def test_an_endpoint_that_has_another_model(asked, url):
    diagnosis = asked({"answerer.base_url": url, "answerer.model": "qwem", "answerer.api_key_env": "EVOSEEK_TEST_KEY"})
    assert diagnosis.state == "fault"
    assert "has no model qwem, but qwen" in diagnosis.words
    assert diagnosis.remedy == "Set answerer.model to one of them."


def test_an_endpoint_that_wants_a_key(asked, url):
    diagnosis = asked({"answerer.base_url": url, "answerer.model": "qwen"})
    assert diagnosis.state == "fault"
    assert "refuses a request without a key (status 401)" in diagnosis.words
    assert "answerer.api_key_env" in diagnosis.remedy


def test_a_key_that_is_not_set(asked, url):
    diagnosis = asked({"answerer.base_url": url, "answerer.model": "qwen", "answerer.api_key_env": "EVOSEEK_NO_KEY"})
    assert diagnosis.state == "fault"
    assert "export EVOSEEK_NO_KEY=..." in diagnosis.remedy


def test_nobody_at_the_address(asked):
    diagnosis = asked({"answerer.base_url": "http://127.0.0.1:1/v1", "answerer.model": "qwen"})
    assert diagnosis.state == "fault"
    assert "does not answer" in diagnosis.words
    diagnosis = asked({"search.name": "remote", "search.url": "http://127.0.0.1:1/retrieve"})
    assert (diagnosis.about, diagnosis.state) == ("search.url", "fault")


def test_a_provider_of_web_search_without_its_key(asked, monkeypatch):
    diagnosis = asked({"web.provider": "serper"}, system="deepresearcher")
    assert diagnosis.state == "fault"
    assert diagnosis.remedy == "Set the environment variable SERPER_API_KEY to it."
    monkeypatch.setenv("SERPER_API_KEY", SECRET)
    assert asked({"web.provider": "serper"}, system="deepresearcher").state == "ok"
