"""Ctrl-C that is held comes when the block has ended, and only where it would have come at all."""

import os
import signal
from collections.abc import Iterator
from threading import Thread

import pytest

from inkling_runtime.adapter.interrupts import interrupts_held


@pytest.fixture(autouse=True)
def default_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a runner may ignore it
    yield
    signal.signal(signal.SIGINT, before)


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_held_interrupt_is_noted_at_once_and_raised_at_the_end() -> None:
    noted: list[BaseException] = []
    steps: list[int] = []

    def press_twice() -> None:
        with interrupts_held(noted.append):
            press_ctrl_c()
            steps.append(len(noted))
            press_ctrl_c()
            steps.append(len(noted))

    with pytest.raises(KeyboardInterrupt) as caught:
        press_twice()
    assert steps == [1, 2]
    assert noted == [caught.value, caught.value]


def test_afterwards_ctrl_c_is_as_it_was() -> None:
    with interrupts_held():
        pass
    with pytest.raises(KeyboardInterrupt):
        press_ctrl_c()


def test_an_interrupt_goes_before_the_exception_of_the_block() -> None:
    def press_and_fail() -> None:
        with interrupts_held():
            press_ctrl_c()
            raise OSError("the disk is full")

    with pytest.raises(KeyboardInterrupt):
        press_and_fail()


def test_the_handler_of_a_program_is_left_alone() -> None:
    seen: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    with interrupts_held():
        press_ctrl_c()
        assert seen == [signal.SIGINT]


def test_in_another_thread_nothing_changes() -> None:
    reached: list[bool] = []

    def work() -> None:
        with interrupts_held():
            reached.append(signal.getsignal(signal.SIGINT) is signal.default_int_handler)

    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert reached == [True]
