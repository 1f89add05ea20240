"""Progress: silent by default, lines when piped, a bar on a terminal."""

import io

import pytest

from data.progress import Progress, Step


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_silent_progress_still_counts(capsys):
    progress = Progress()
    progress.say("news")
    with progress.step("read", 10) as step:
        step.advance(4)
        step.advance()
    assert step.done == 5
    assert capsys.readouterr() == ("", "")


def test_piped_progress_prints_rate_and_time_left():
    stream = io.StringIO()
    with Progress(stream, every_s=0).step("read", 1000, "rows") as step:
        step.started -= 2
        step.advance(500)
    assert stream.getvalue().startswith("  read: 500/1,000 rows, 2")
    assert stream.getvalue().endswith(" 2 s left\n")


def test_piped_lines_are_at_most_one_an_interval():
    stream = io.StringIO()
    with Progress(stream, every_s=60).step("read") as step:
        for _ in range(1000):
            step.advance()
    assert stream.getvalue() == ""
    assert "left" not in step.line(step.started + 1)


def test_a_terminal_gets_a_bar_that_disappears():
    stream = Terminal()
    progress = Progress(stream)
    with progress.step("train", 10, "steps") as step:
        step.advance(10)
    progress.say("done")
    assert "train" in stream.getvalue()
    assert step.done == 10
    assert stream.getvalue().endswith("done\n")


@pytest.mark.parametrize("total", [None, 0])
def test_an_unknown_total_shows_the_count_alone(total):
    assert Step("read", total, "rows", io.StringIO(), 0).line(1e12).startswith("read: 0 rows")
