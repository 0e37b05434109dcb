from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from shardkeep.pytorch.agreement import Wish
from shardkeep.pytorch.signals import SignalHandlers, Wishes


def run_python(source: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)], capture_output=True, text=True, timeout=200, check=False
    )


def test_SIGUSR1_asks_for_a_save_once() -> None:
    wishes = Wishes()
    handlers = SignalHandlers(wishes)
    assert handlers.install()
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert wishes.take() is Wish.SAVE
        assert wishes.take() is Wish.NOTHING
        assert not wishes.stop_asked
    finally:
        handlers.restore()


def test_SIGTERM_asks_for_a_save_and_a_stop_which_stays_asked() -> None:
    wishes = Wishes()
    handlers = SignalHandlers(wishes)
    handlers.install()
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        assert wishes.take() is Wish.SAVE_AND_STOP
        assert wishes.take() is Wish.NOTHING
        assert wishes.stop_asked
    finally:
        handlers.restore()


def test_earlier_handlers_are_called_and_come_back() -> None:
    called: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda signum, _frame: called.append(signum))
    installed = signal.getsignal(signal.SIGUSR1)
    handlers = SignalHandlers(Wishes())
    try:
        handlers.install()
        os.kill(os.getpid(), signal.SIGUSR1)
        handlers.restore()
        assert called == [signal.SIGUSR1]
        assert signal.getsignal(signal.SIGUSR1) is installed
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_handlers_that_somebody_put_on_top_stay() -> None:
    handlers = SignalHandlers(Wishes())
    before = signal.getsignal(signal.SIGUSR1)
    handlers.install()
    mine = signal.SIG_IGN
    signal.signal(signal.SIGUSR1, mine)
    handlers.restore()
    try:
        assert signal.getsignal(signal.SIGUSR1) is mine
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_off_the_main_thread_nothing_is_installed_and_that_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    before = signal.getsignal(signal.SIGTERM)
    installed: list[bool] = []
    thread = threading.Thread(target=lambda: installed.append(SignalHandlers(Wishes()).install()))
    thread.start()
    thread.join()

    assert installed == [False]
    assert signal.getsignal(signal.SIGTERM) is before
    assert "request_save(stop=True)" in caplog.text


def test_a_forked_child_dies_of_SIGTERM_as_it_would_have_without_the_handlers() -> None:
    result = run_python(
        """
        import os, signal, time
        from shardkeep.pytorch.signals import SignalHandlers, Wishes
        wishes = Wishes()
        SignalHandlers(wishes).install()
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writer, b"!")  # CPython drops signals that come before fork() has returned
            time.sleep(30)
            os._exit(0)
        os.read(reader, 1)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
        print(os.WTERMSIG(status) == signal.SIGTERM, wishes.stop_asked)
        """
    )
    assert result.stdout.split() == ["True", "False"], result.stderr


def test_asking_from_threads_and_signals_loses_no_wish() -> None:
    wishes = Wishes()
    handlers = SignalHandlers(wishes)
    handlers.install()
    stop = threading.Event()

    def ask_often() -> None:
        while not stop.is_set():
            wishes.ask(stop=False)
            time.sleep(0)

    threads = [threading.Thread(target=ask_often) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
        for _ in range(200):
            os.kill(os.getpid(), signal.SIGUSR1)
            assert wishes.take() is Wish.SAVE
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        handlers.restore()


def test_E175_a_handler_only_counts_wherever_it_interrupts() -> None:
    wishes = Wishes()
    handlers = SignalHandlers(wishes)
    handlers.install()
    total, seen = 500, 0
    source = f"""
import os, time
for _ in range({total}):
    os.kill({os.getpid()}, {signal.SIGUSR1:d})
    time.sleep(0.0005)
"""
    sender = subprocess.Popen([sys.executable, "-c", source])
    try:
        while sender.poll() is None:
            seen += sum(range(1000)) > 0 and wishes.take() is Wish.SAVE
        seen += wishes.take() is Wish.SAVE  # all of them, where this process stood still meanwhile
        assert 0 < seen <= total
        assert wishes.take() is Wish.NOTHING
    finally:
        sender.kill()
        sender.wait()
        handlers.restore()
