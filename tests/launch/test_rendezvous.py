"""Ranks meet on loopback, and runs at the same time do not meet each other."""

from __future__ import annotations

import json
import os
import socket
import threading

import pytest

from expkit.launch.rendezvous import PaddleRendezvous, TorchRendezvous, is_listening


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_four_runs_at_once_do_not_collide(launch, framework):
    ended = {}

    def run(token):
        acts = {rank: ["meet"] for rank in range(3)}
        supervisor = launch.supervisor(acts, num_processes=3, framework=framework, token=token)
        ended[token] = supervisor.run()

    threads = [threading.Thread(target=run, args=(f"run {number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.failures for one in ended.values()] == [()] * 4


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_ranks_know_their_place_and_have_a_session_of_their_own(launch, framework, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("WORLD_SIZE", "17")  # of whoever started the supervisor
    acts = {rank: ["tell"] for rank in range(3)}
    devices = ["gpu:2", "gpu:0", "gpu:1"]
    launch(acts, num_processes=3, framework=framework, devices=devices, attempt=2)
    told = [json.loads((launch.directory / f"rank{rank}.json").read_text()) for rank in range(3)]
    for rank, one in enumerate(told):
        place = one["place"]
        assert (place["launcher"], place["rank"], place["local_rank"]) == ("expkit", rank, rank)
        assert (place["world_size"], place["local_world_size"]) == (3, 3)
        assert (place["address"], place["attempt"]) == ("127.0.0.1", 2)
        assert one["session"] == one["pid"]
        assert one["OMP_NUM_THREADS"] == str(max(1, len(os.sched_getaffinity(0)) // 3))
        selected = {"torch": None, "paddle": devices[rank].removeprefix("gpu:")}[framework]
        assert one["FLAGS_selected_gpus"] == selected
    assert len({one["place"]["port"] for one in told}) == 1


def test_the_user_s_number_of_threads_is_kept(launch, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    launch({0: ["tell"]}, num_processes=1)
    assert json.loads((launch.directory / "rank0.json").read_text())["OMP_NUM_THREADS"] == "5"


def test_a_port_kept_for_paddle_is_free_for_it_alone():
    held = PaddleRendezvous(2, 0)
    port = int(held.variables(0)["PADDLE_MASTER"].rpartition(":")[2])
    assert not is_listening(port)
    ports = set()
    for _ in range(200):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            ports.add(other.getsockname()[1])
    assert port not in ports
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", port))
        server.listen()
        assert is_listening(port)
    assert not is_listening(port)
    held.close()


def test_torch_s_socket_listens_on_loopback_only_and_goes_with_rank_0():
    meeting = TorchRendezvous(2, 0)
    port = int(meeting.variables(1)["MASTER_PORT"])
    assert is_listening(port)
    assert "EXPKIT_STORE_FD" in meeting.variables(0)
    assert "EXPKIT_STORE_FD" not in meeting.variables(1)
    meeting.started(0)  # nobody has inherited it
    assert not is_listening(port)
    meeting.close()
