"""Servers that a run starts: the command, the wait for it, and its end with the run, however that ends."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import ExitStack

import pytest
from pydantic import ValidationError

from evoseek.errors import ConfigError
from evoseek.samplers.vllm.process import HOST, Model, ServerCommand, commands, free_ports, launch
from evoseek.samplers.vllm.sampler import VLLMSampler

UP = "import http.server, sys; H = http.server.BaseHTTPRequestHandler\n" + textwrap.dedent("""
    class Health(H):
        def do_GET(self):
            self.send_response(200); self.send_header("content-length", "0"); self.end_headers()
    print("weights loaded", flush=True)
    http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Health).serve_forever()
""")


def settings(**given):
    return VLLMSampler.Settings(name="vllm", **given)


def start(tmp_path, code, closing, start_s=60.0):
    (port,) = free_ports(1)
    url = f"http://{HOST}:{port}"
    launch({url: ServerCommand([sys.executable, "-c", code, str(port)], {})}, tmp_path, closing, start_s)
    return url


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_the_command_of_each_server_names_its_gpus_and_the_model():
    own = settings(gpus=("0,1", "2,3"), program=("/opt/vllm",), arguments=("--seed", "1"))
    first, second = commands(own, Model("/m", 2048, "bfloat16", 12), [8000, 8001]).items()
    assert first[0] == "http://127.0.0.1:8000"
    assert str(first[1]) == (
        "CUDA_VISIBLE_DEVICES=0,1 VLLM_SERVER_DEV_MODE=1 VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 /opt/vllm serve /m "
        "--served-model-name policy --host 127.0.0.1 --port 8000 --dtype bfloat16 --max-model-len 2048 "
        "--logprobs-mode processed_logprobs --generation-config vllm --tensor-parallel-size 2 "
        "--enable-lora --max-loras 2 --max-lora-rank 16 --seed 1"
    )
    assert "CUDA_VISIBLE_DEVICES=2,3" in str(second[1])
    assert "--port 8001" in str(second[1])


def test_contradictory_settings_have_a_remedy():
    assert "names a server twice" in " ".join(settings(urls=("http://a", "http://a")).problems())
    with pytest.raises(ValidationError, match=r"gpus"):
        settings(gpus=("0, 1",))


def test_a_program_that_is_not_there_is_named_before_anything_starts(tmp_path):
    command = ServerCommand(["no-such-vllm", "serve"], {})
    with ExitStack() as closing, pytest.raises(ConfigError, match=r"no program 'no-such-vllm'\. Set sampler\.program"):
        launch({"http://127.0.0.1:1": command}, tmp_path, closing)


def test_a_server_is_waited_for_and_ends_with_the_run(tmp_path):
    with ExitStack() as closing:
        start(tmp_path, "import os, sys; print(os.getpid(), flush=True)\n" + UP, closing)
        pid = int((tmp_path / "server-0.log").read_text().splitlines()[0])
        assert not gone(pid)
    assert gone(pid)


def test_a_server_that_ends_is_reported_with_the_end_of_its_log(tmp_path):
    code = "import sys; print('CUDA out of memory'); sys.exit(3)"
    with ExitStack() as closing, pytest.raises(ConfigError, match=r"(?s)ended with status 3\..*CUDA out of memory"):
        start(tmp_path, code, closing)


def test_a_server_that_is_not_up_in_time_is_ended(tmp_path):
    code = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(1000)"
    with ExitStack() as closing, pytest.raises(ConfigError, match=r"was not up in 0\.01 seconds"):
        start(tmp_path, code, closing, start_s=0.01)


def test_the_server_of_a_killed_run_ends(tmp_path):
    run = f"""
        import time
        from contextlib import ExitStack
        from pathlib import Path
        from evoseek.samplers.vllm.process import ServerCommand, launch
        code = "import os; print(os.getpid(), flush=True)\\n" + {UP!r}
        command = ServerCommand([{sys.executable!r}, "-c", code, "PORT"], {{}})
        launch({{"http://127.0.0.1:PORT": command}}, Path({str(tmp_path)!r}), ExitStack())
        print("up", flush=True)
        time.sleep(1000)
    """
    (port,) = free_ports(1)
    code = textwrap.dedent(run).replace("PORT", str(port))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "up\n"
        pid = int((tmp_path / "server-0.log").read_text().splitlines()[0])
        process.send_signal(signal.SIGKILL)
        process.wait()
    while not gone(pid):
        time.sleep(0.05)
